"""The service's parts, each alone: logs, the store, tickets, and the limit of a collection."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dpsketch.errors import FileRefused
from dpsketch.server.aggregates import Aggregate, Aggregates
from dpsketch.server.refusals import Refused
from dpsketch.server.reports import Collecting, Outcome
from dpsketch.server.service import running
from dpsketch.server.settings import Limits, Settings
from dpsketch.server.storage import CollectionPlan, Mark, Storage
from dpsketch.server.telemetry import Metrics
from serving import PROTOCOL, inside, new_token, objects


def compact(number: int) -> list[bytes]:
    return PROTOCOL.to_bytes(PROTOCOL.report([["a"]] * number))


def test_a_log_line_tells_where_and_never_what() -> None:
    """A warning of NumPy's in a thread of the service went to standard error as it was, and was no JSON.

    Uvicorn logs what stopped the start as text, exception and all.
    """
    program = """
import logging, threading, numpy as np
from dpsketch.server import telemetry
telemetry.configure("info")
telemetry.log("info", "started", releases=3)
try:
    raise ValueError("the password of ann")
except ValueError:
    logging.getLogger("some.library").exception("failed for %s", "10.0.0.7")
logging.getLogger("some.library").info("chatter")
np.array([1e308]) * 10
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
logging.getLogger("uvicorn.error").error("Traceback (most recent call last):\\n...\\nValueError: the password of ann")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    events = ["started", "failed for %s", "warning of a library", "thread ended", "the application did not start"]
    assert [line["event"] for line in lines] == events
    assert (lines[0]["level"], lines[0]["releases"]) == ("info", 3)
    assert (lines[1]["error"], lines[1]["logger"]) == ("ValueError", "some.library")
    assert "place" in lines[1]
    assert "ann" not in done.stderr
    assert "10.0.0.7" not in done.stderr


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage]:
    opened = Storage(str(tmp_path / "store.db"))
    yield opened
    opened.close()


def test_a_store_is_for_its_owner_and_for_one_process(tmp_path: Path, storage: Storage) -> None:
    assert (tmp_path / "store.db").stat().st_mode & 0o077 == 0
    (tmp_path / "store.db.lock").touch(
        0o644
    )  # as an umask may have left it: whoever may lock it could stop the service
    storage.claim()
    assert (tmp_path / "store.db.lock").stat().st_mode & 0o077 == 0
    assert storage._writer is not None
    assert storage._writer.value("PRAGMA synchronous") == 2  # FULL: the log is synchronised at every commit
    assert storage._writer.value("PRAGMA journal_mode") == "wal"
    second = Storage(str(tmp_path / "store.db"))
    with pytest.raises(FileRefused, match="another process"):
        second.claim()
    storage.close()
    second.claim()
    second.close()


@asynccontextmanager
async def collecting_in(storage: Storage) -> AsyncIterator[tuple[Collecting, Aggregate]]:
    """Collect into a new collection of a store, from a queue for 200 reports."""
    storage.claim()
    aggregates = Aggregates(storage)
    aggregate = aggregates.create("x", PROTOCOL.to_json(), None)
    collecting = Collecting(storage, aggregates, Limits(waiting=200 * PROTOCOL.form.size), Metrics())
    collecting.start()
    yield collecting, aggregate
    await collecting.stop()


def test_of_two_reports_that_come_at_once_with_one_ticket_one_is_stored(storage: Storage) -> None:
    async def work() -> None:
        async with collecting_in(storage) as (collecting, aggregate):
            mark = Mark(aggregate.row.id, 1, "00")
            both = (collecting.submit(aggregate, each, mark) for each in compact(2))
            stored, refused = await asyncio.gather(*both, return_exceptions=True)
            assert stored == Outcome(1, 0, 0)
            assert isinstance(refused, Refused)
            assert aggregate.reports == 1

    asyncio.run(work())


def test_a_queue_that_is_full_says_so_and_many_requests_share_a_commit(storage: Storage) -> None:
    async def work() -> None:
        async with collecting_in(storage) as (collecting, aggregate):
            with pytest.raises(Refused) as refusal:
                await collecting.submit(aggregate, b"".join(compact(201)))
            assert refusal.value.status_code == 503
            messages = compact(100)
            answers = await asyncio.gather(*(collecting.submit(aggregate, each) for each in messages + messages[:50]))
            assert answers == [Outcome(1, 0, 0)] * 100 + [Outcome(0, 1, 0)] * 50
            assert storage.newest < 10, "a hundred requests were not committed in groups"
            kept = b"".join(storage.contents([chunk.number for chunk in storage.chunks()]))
            assert len(kept) == 100 * PROTOCOL.form.size
            # Of the reports of a commit the store does not keep which came first, in one request or in several.
            await collecting.submit(aggregate, b"".join(compact(100)))
            for chunk in storage.chunks():
                records = np.frombuffer(b"".join(storage.contents([chunk.number])), PROTOCOL.form.dtype)
                assert (high := records["id"][:, 1].tolist()) == sorted(high)
        with pytest.raises(Refused):
            await collecting.submit(aggregate, messages[0])

    asyncio.run(work())


def test_requests_that_come_together_do_not_fill_a_collection_beyond_its_limit(tmp_path: Path) -> None:
    """Of two collections one has the service's own limit, and one a lower one."""
    store = str(tmp_path / "x.db")
    headers = {"Authorization": f"Bearer {new_token(store, 'admin')}"}

    async def filled(client: httpx.AsyncClient, most: int, **more: int) -> None:
        asked = {"name": "x", "spec": PROTOCOL.to_json(), **more}
        made = (await client.post("/v1/collections", json=asked, headers=headers)).json()
        address = f"/v1/collections/{made['id']}"
        sent = (client.post(f"{address}/reports", json=each, headers=headers) for each in objects(40))
        told = await asyncio.gather(*sent)
        assert Counter(each.status_code for each in told) == {202: most, 409: 40 - most}
        assert {each.json()["error"]["code"] for each in told if each.status_code == 409} == {"full"}
        assert (await client.get(f"{address}/counters", headers=headers)).json()["accepted"] == most

    async def work() -> None:
        async with inside(Settings(store, limits=Limits(max_reports=20))) as client:
            await filled(client, 20)
            await filled(client, 10, max_reports=10)

    asyncio.run(work())


async def together(collecting: Collecting, aggregate: Aggregate, sent: list[bytes], **more: Any) -> list[Outcome]:
    """Submit requests that one commit takes together."""
    return await asyncio.gather(*(collecting.submit(aggregate, each, **more) for each in sent))


def test_what_finds_no_room_is_not_stored_and_says_so(tmp_path: Path) -> None:
    """A report that was refused with its batch is new where it comes again, in the same commit or later.

    A ticket whose report found no room is not used up.
    """

    async def work() -> None:
        async with running(Settings(str(tmp_path / "x.db"))) as service:
            aggregate = service.aggregates.create("x", PROTOCOL.to_json(), None, CollectionPlan(max_reports=3))
            a, b, c, d, e = PROTOCOL.to_bytes(PROTOCOL.report([["a"]] * 5))
            told = await together(service.collecting, aggregate, [a + b, c + d, d, a, e, e])
            # c and d together are too many; d alone is not, and then nothing is left for e.
            assert told == [
                Outcome(2, 0, 0), Outcome(0, 0, 0, full=2), Outcome(1, 0, 0), Outcome(0, 1, 0),
                Outcome(0, 0, 0, full=1), Outcome(0, 0, 0, full=1),
            ]  # fmt: skip
            assert aggregate.reports == 3
            # Those that are stored can be sent again; the others are still refused.
            told = await together(service.collecting, aggregate, [a + b + d, a + c, e])
            assert told == [Outcome(0, 3, 0), Outcome(0, 1, 0, full=1), Outcome(0, 0, 0, full=1)]
            mark = Mark(aggregate.row.id, 1, "m")
            assert await together(service.collecting, aggregate, [e], mark=mark) == [Outcome(0, 0, 0, full=1)]
            assert service.storage.used_marks([mark]) == set()
            assert aggregate.reports == 3

    asyncio.run(work())
