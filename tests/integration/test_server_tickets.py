"""Collections that ask for tickets: one report for each subject and period, against the real service."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dpsketch.local import tickets
from dpsketch.server.auth import check_ticket, current_period
from dpsketch.server.storage import Mark, Storage, Ticketing
from serving import PROTOCOL, Server, objects


@pytest.fixture(scope="module")
def server(serve: Callable[..., Server]) -> Server:
    """Closed to strangers: neither --public-collect nor --public-read."""
    return serve("--address-rate", "1000")


def ticketed(server: Server) -> tuple[str, str]:
    """A collection whose only period never ends, so that no day passes while a test runs."""
    asked = {"name": "Fruit", "spec": PROTOCOL.to_json(), "candidates": ["apple", "pear"], "tickets": "once"}
    answer = server.client(server.environment["token"]).post("/v1/collections", json=asked)
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["tickets"] == "once"
    return str(made["id"]), str(made["ticket_key"])


def ticket(collection: str, key: str, subject: str = "ann", seconds: float = 3600) -> str:
    return tickets.issue(key, collection, subject=subject, expires=time.time() + seconds)


def send(server: Server, collection: str, body: Any, with_ticket: str | None = None) -> tuple[int, str]:
    headers = {} if with_ticket is None else {tickets.HEADER: with_ticket}
    answer = server.client().post(f"/v1/collections/{collection}/reports", json=body, headers=headers)
    told = answer.json()
    return answer.status_code, told["error"]["code"] if "error" in told else json.dumps(told)


def taken(accepted: int = 0, repeated: int = 0) -> tuple[int, str]:
    return 202, json.dumps({"accepted": accepted, "repeated": repeated, "malformed": 0, "other_spec": 0})


def test_a_ticket_brings_one_report_a_period(server: Server) -> None:
    collection, key = ticketed(server)
    mine, second = objects(2)
    assert send(server, collection, mine) == (401, "ticket_needed")
    assert send(server, collection, mine, ticket(collection, key)) == taken(accepted=1)
    # Sent again because the answer was lost: it counts once, and whoever asks is told so.
    assert send(server, collection, mine, ticket(collection, key)) == taken(repeated=1)
    assert send(server, collection, second, ticket(collection, key)) == (409, "ticket_used")
    # Another ticket of the same subject is the same subject.
    assert send(server, collection, second, ticket(collection, key, seconds=99)) == (409, "ticket_used")
    assert send(server, collection, second, ticket(collection, key, "bob")) == taken(accepted=1)
    assert server.client(server.environment["token"]).get(f"/v1/collections/{collection}").json()["reports"] == 2


def test_what_is_forged_expired_or_of_another_collection_is_refused(server: Server) -> None:
    collection, key = ticketed(server)
    other, other_key = ticketed(server)
    good = ticket(collection, key)
    body = objects(1)[0]
    wrong = [
        ticket(collection, other_key),
        ticket(other, other_key),
        ticket(other, key),
        ticket(collection, key, seconds=-10),
        good[:-2] + ("AA" if good[-2:] != "AA" else "BB"),
        good.replace(".ann.", ".eve."),
        good.rpartition(".")[0],
        "dpt1....",
        "x" * 5000,
    ]
    assert {send(server, collection, body, each) for each in wrong} == {(403, "ticket_refused")}
    # Several reports with one ticket, a batch with a token, and an administrator: the requirement is everybody's.
    assert send(server, collection, objects(2), good) == (413, "too_many")
    admin = server.client(server.environment["token"])
    assert admin.post(f"/v1/collections/{collection}/reports", json=body).json()["error"]["code"] == "ticket_needed"
    # A report that is malformed uses nothing up.
    assert send(server, collection, {"no": "report"}, good) == (422, "malformed")
    assert send(server, collection, body, good) == taken(accepted=1)
    # A ticket opens its own collection's spec, and nothing else.
    headers = {tickets.HEADER: good}
    assert server.client().get(f"/v1/collections/{collection}", headers=headers).json()["spec"] == PROTOCOL.to_json()
    for path in (f"/v1/collections/{other}", f"/v1/collections/{collection}/estimate?key=apple", "/v1/collections"):
        assert server.client().get(path, headers=headers).status_code in (401, 403), path


def test_the_store_keeps_no_subject_and_the_list_no_key(server: Server) -> None:
    collection, key = ticketed(server)
    subject = "a-subject-of-its-own"
    assert send(server, collection, objects(1)[0], ticket(collection, key, subject)) == taken(accepted=1)
    shown = server.client(server.environment["token"]).get("/v1/collections").text
    assert key not in shown
    assert '"tickets":"once"' in shown
    with closing(sqlite3.connect(server.options[1])) as connection:
        rows = str(connection.execute("SELECT * FROM dpsketch_mark").fetchall())
    assert subject not in rows
    assert subject not in server.log.read_text()
    assert key not in server.log.read_text()


def test_periods_pass_and_what_is_long_over_is_forgotten(tmp_path: Path) -> None:
    daily = Ticketing(tickets.new_key(), "day")
    now = 86_400.0 * 20_000
    signed = tickets.issue(daily.key, "c", subject="ann", expires=now + 1e6)
    first, same, later = (check_ticket(daily, "c", signed, at) for at in (now, now + 86_399, now + 86_400))
    assert first == same != later
    # Marks in the store tell nobody which subjects are one: not over periods, nor over collections, nor without a key.
    others = [
        check_ticket(each, name, tickets.issue(each.key, name, subject="ann", expires=now + 1e6), now)
        for each, name in ((daily, "d"), (Ticketing(tickets.new_key(), "day"), "c"))
    ]
    assert len({mark for _, mark in (first, later, *others)}) == 4
    assert {current_period(Ticketing("k", "once"), at) for at in (0.0, now, 2 * now)} == {0}
    storage = Storage(str(tmp_path / "marks.db"))
    storage.claim()
    marks = [Mark("c", period, str(period)) for period in range(5)]
    storage.append([], {}, marks)
    storage.forget_marks("c", 3)
    assert storage.used_marks(marks) == set(marks[3:])
    storage.close()
