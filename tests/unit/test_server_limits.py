"""The service's limits, each alone: rates, quotas, bodies, and what computing costs."""

from __future__ import annotations

import asyncio
import itertools
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.responses import Response

from dpsketch.server.answers import Answers, reply
from dpsketch.server.limits import Quota, Rate
from dpsketch.server.refusals import Refused
from dpsketch.server.service import Service
from dpsketch.server.settings import Limits, Settings
from dpsketch.server.storage import Storage, Token
from dpsketch.server.telemetry import Metrics


def test_a_rate_gives_back_what_time_brings_and_forgets_whoever_is_at_rest() -> None:
    now = 0.0
    rate = Rate(2.0, clock=lambda: now)

    def refused(caller: str, amount: float = 1.0) -> str:
        with pytest.raises(Refused) as refusal:
            rate.take(caller, amount)
        assert refusal.value.status_code == 429
        assert refusal.value.headers is not None
        return refusal.value.headers["Retry-After"]

    for _ in range(4):
        rate.take("one")
    assert refused("one") == "1"
    rate.take("another", 10)  # more than a bucket holds is owed
    now = 0.5
    rate.take("one")
    refused("one")
    now = 4.0
    refused("another", 3)
    now = 1000.0
    for number in range(1000):
        rate.take(f"caller {number}")
    rate.charge("debtor", 1000)
    now = 1003.0
    for number in range(600):
        rate.take(f"another {number}")
    assert "caller 999" not in rate._left
    assert len(rate._left) <= 601
    refused("debtor")


def test_workers_together_let_through_what_one_would(tmp_path: Path) -> None:
    """Each of two workers has half of an address's quota."""
    storage = Storage(f"sqlite:///{tmp_path}/store.db")
    service = Service(Settings(store="", shared=True, workers=2, limits=Limits(address_quota=6)), storage)
    stranger: Any = SimpleNamespace(stranger=True, key="address")
    collection: Any = SimpleNamespace(row=SimpleNamespace(id="collection"))
    service.admission.reserve(stranger, collection, 3)
    with pytest.raises(Refused):
        service.admission.reserve(stranger, collection, 1)
    storage.close()


def answers_of(seconds: float) -> Answers:
    return Answers(compute_rate=seconds, timeout=5, metrics=Metrics())


def test_computing_is_charged_to_who_asks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer is said to take three seconds of the processor; five are to be had at once."""
    spent = itertools.count(0, 3)
    monkeypatch.setattr("dpsketch.server.answers.time.thread_time", lambda: float(next(spent)))

    async def work() -> None:
        answers = answers_of(0.001)
        for name in (b"1", b"2", b"1"):
            assert (await answers.answer("a", False, name, lambda: reply({}))).status_code == 200
        with pytest.raises(Refused) as refusal:
            await answers.answer("a", False, b"3", lambda: reply({}))
        assert refusal.value.status_code == 429
        assert (await answers.answer("a", False, b"2", lambda: reply({}))).status_code == 200  # it is kept
        assert (await answers.answer("b", True, b"3", lambda: reply({}))).status_code == 200
        answers.stop()

    asyncio.run(work())


def test_who_joins_a_question_is_not_refused_for_who_asked_it_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer costs its asker six of five seconds; what the asker wants next is asked by another meanwhile."""
    spent = itertools.count(0, 6)
    monkeypatch.setattr("dpsketch.server.answers.time.thread_time", lambda: float(next(spent)))

    async def work() -> None:
        answers = answers_of(0.001)
        asked = [("a", b"1"), ("a", b"2"), ("b", b"2"), ("c", b"2")]
        tasks = [answers.answer(caller, False, name, lambda: reply({})) for caller, name in asked]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [each.status_code for each in found] == [200, 429, 200, 200]
        assert next(spent) == 24  # two clock readings for each of two answers: b pays, and c shares
        answers.stop()

    asyncio.run(work())


def test_who_comes_as_a_question_is_refused_leaves_the_loop_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that has just been refused is pending until the loop's next turn, and must be asked anew after it."""

    async def newer(future: asyncio.Future[Any], seconds: float) -> Any:  # as from Python 3.12 on: no turn is taken
        async with asyncio.timeout(seconds):
            return await future

    monkeypatch.setattr(asyncio, "wait_for", newer)

    async def work() -> None:
        answers = answers_of(0.001)
        looked = 0
        known = answers._being_computed

        def found(*asked: Any) -> Any:
            nonlocal looked
            looked += 1
            assert looked < 100
            return known(*asked)

        monkeypatch.setattr(answers, "_being_computed", found)
        begun, gate = threading.Event(), threading.Event()
        tasks = [asyncio.create_task(answers.answer("a", False, b"1", lambda: reply([begun.set(), gate.wait(5)])))]
        tasks += [asyncio.create_task(answers.answer("a", False, b"2", lambda: reply({})))]
        while (b"2", 0) not in answers._pending or not begun.is_set():
            await asyncio.sleep(0)
        pending = answers._pending[b"2", 0]
        answers._rate.charge("a", 100.0)
        gate.set()
        while not pending.done():
            await asyncio.sleep(0)
        assert (b"2", 0) in answers._pending
        assert (await answers.answer("b", False, b"2", lambda: reply({}))).status_code == 200
        assert [each.status_code for each in await asyncio.gather(*tasks, return_exceptions=True)] == [200, 429]
        answers.stop()

    asyncio.run(work())


def test_one_address_does_not_take_the_places_of_others() -> None:
    """However much one address asks, others find a place; however many addresses ask, whoever has a token does."""

    async def work() -> None:
        answers = answers_of(100)
        gate = threading.Event()
        begun: list[str] = []

        def held(who: str) -> Response:
            begun.append(who)
            gate.wait(20)
            return reply({})

        def ask(who: str, known: bool, number: int = 1) -> list[asyncio.Task[Response]]:
            names = (f"{who}{place}".encode() for place in range(number))
            return [asyncio.create_task(answers.answer(who, known, name, lambda: held(who))) for name in names]

        greedy = ask("a", False, 300)
        others = [each for who in range(20) for each in ask(f"address {who}", False)]
        many = [each for who in range(200) for each in ask(f"one of many {who}", False)]
        holders = [each for who in range(3) for each in ask(f"token {who}", True)]
        while "a" not in begun:
            await asyncio.sleep(0.1)
        assert [who for who in begun if "token" not in who] == ["a"], "all addresses compute one answer at a time"
        gate.set()
        assert {each.status_code for each in await asyncio.gather(*others, *holders)} == {200}
        told = await asyncio.gather(*greedy, return_exceptions=True)
        refused = [each for each in told if isinstance(each, Refused)]
        assert 200 < len(refused) < 300
        assert {each.status_code for each in refused} == {429}
        told = await asyncio.gather(*many, return_exceptions=True)
        assert {each.status_code for each in told} == {200, 503}
        assert (answers._places, answers._turns) == ({}, {})
        answers.stop()

    asyncio.run(work())


def test_a_quota_that_is_used_up_is_not_forgotten_for_a_flood_of_addresses() -> None:
    """Memory stays what it is, and whoever has had most is remembered longest, for a day, and by no address."""
    now = 0.0
    quota = Quota(5, clock=lambda: now, groups=4)
    quota.take("203.0.113.7", 5)
    quota.give_back("203.0.113.7", 2)
    quota.take("203.0.113.7", 2)
    size = len(quota._names.tobytes())
    for number in range(2000):
        quota.take(f"passer-by {number}", 1)
    with pytest.raises(Refused):
        quota.take("203.0.113.7", 1)
    assert len(quota._names.tobytes()) == size
    assert b"203.0" not in quota._names.tobytes() + quota._used.tobytes()
    now = 86_400.0
    quota.take("203.0.113.7", 5)


def test_the_end_of_a_token_only_comes_nearer(tmp_path: Path) -> None:
    storage = Storage(str(tmp_path / "store.db"))
    storage.add_token(Token("a", "name", "read", None, 100.0), "digest")
    storage.expire_token("a", 999.0)
    assert storage.tokens()["digest"].expires == 100.0
    storage.expire_token("a", 50.0)
    assert storage.tokens()["digest"].expires == 50.0
