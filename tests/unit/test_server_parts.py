"""The service's parts, each alone: logs, tokens, storage that fails, and reports in compact and Arrow form."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpsketch import local
from dpsketch.errors import FileRefused
from dpsketch.server.aggregates import Aggregate, Aggregates
from dpsketch.server.database import StorageFailed
from dpsketch.server.refusals import Refused
from dpsketch.server.reports import Collecting, Outcome
from dpsketch.server.settings import Limits
from dpsketch.server.storage import Chunk, Mark, Storage
from dpsketch.server.telemetry import Metrics

PROTOCOL = local.SubsetHashing(epsilon=2.0, max_items=1)


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
    storage.claim()
    assert storage._writer is not None
    assert storage._writer.value("PRAGMA synchronous") == 2  # FULL: the log is synchronised at every commit
    assert storage._writer.value("PRAGMA journal_mode") == "wal"
    second = Storage(str(tmp_path / "store.db"))
    with pytest.raises(FileRefused, match="another process"):
        second.claim()
    storage.close()
    second.claim()
    second.close()


class Unsure(Storage):
    """A store whose writes take place and then fail, as when a connection breaks during a commit."""

    broken = False

    def append(self, *given: Any) -> list[Chunk]:
        written = super().append(*given)
        if self.broken:
            self._next -= len(written)
            raise StorageFailed("the connection was lost")
        return written


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


def test_a_write_of_which_nobody_knows_whether_it_took_place_counts_once(tmp_path: Path) -> None:
    async def work() -> None:
        storage = Unsure(str(tmp_path / "store.db"))
        async with collecting_in(storage) as (collecting, aggregate):
            first, second = b"".join(compact(10)), b"".join(compact(10))
            assert await collecting.submit(aggregate, first) == Outcome(10, 0, 0)
            storage.broken = True
            with pytest.raises(StorageFailed):
                await collecting.submit(aggregate, second)
            assert aggregate.reports == 10
            storage.broken = False
            assert await collecting.submit(aggregate, second) == Outcome(0, 10, 0)
            assert aggregate.reports == 20
        storage.close()

    asyncio.run(work())
    reopened = Storage(str(tmp_path / "store.db"))
    reopened.claim()
    again = Aggregates(reopened)
    again.load()
    assert [each.reports for each in again] == [20]
    reopened.close()


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
        with pytest.raises(Refused):
            await collecting.submit(aggregate, messages[0])

    asyncio.run(work())


def test_unseen_leaves_a_collector_as_it_was_and_a_snapshot_stays(seeded: None) -> None:
    collector = PROTOCOL.collector()
    columns = PROTOCOL.form.from_bytes(b"".join(compact(3000)))
    assert collector.count({name: column[:2000] for name, column in columns.items()}).all()
    before = collector.to_document()
    assert np.array_equal(collector.unseen(columns), np.arange(3000) >= 2000)
    after = collector.to_document()
    assert all(np.array_equal(before.arrays[name], after.arrays[name]) for name in before.arrays)
    copy = collector.copy()
    told = copy.estimate(["a"]).to_json()
    assert collector.count(columns).sum() == 1000
    assert (copy.users, collector.users) == (2000, 3000)
    assert copy.estimate(["a"]).to_json() == told
    assert copy.count(columns).sum() == 1000
    assert copy.estimate(["a"]).to_json() == collector.estimate(["a"]).to_json()
