"""What the service does when something goes wrong beside it: sessions that die, strangers, and people in no hurry."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import local
from dpsketch.answers import answer
from dpsketch.errors import FileRefused
from dpsketch.server import telemetry
from dpsketch.server.aggregates import Aggregates
from dpsketch.server.database import StorageFailed
from dpsketch.server.refusals import Refused
from dpsketch.server.releases import Releases
from dpsketch.server.reports import Collecting, Outcome
from dpsketch.server.service import running
from dpsketch.server.settings import Limits, Settings
from dpsketch.server.storage import Chunk, Storage, Token
from dpsketch.server.telemetry import Metrics
from serving import PROTOCOL, Server, new_collection, new_token, objects

# PostgreSQL's sessions.


@pytest.fixture
def database(postgresql_url: str) -> str:
    """A database of the test's own."""
    import psycopg

    name = f"faults_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return postgresql_url.rpartition("/")[0] + f"/{name}"


def until(condition: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)


def end_sessions(database: str) -> None:
    import psycopg

    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def locks(database: str) -> int:
    import psycopg

    wanted = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with psycopg.connect(database) as connection:
        row = connection.execute(wanted).fetchone()
    assert row is not None
    return int(row[0])


def test_a_session_that_dies_while_the_store_is_claimed_is_replaced(database: str) -> None:
    storage = Storage(database)
    try:
        storage.claim()
        end_sessions(database)
        with pytest.raises(StorageFailed):
            storage.claim()
        storage.claim()
        assert locks(database) == 1
        assert storage.append([("c", 1, b"x")], {}) == [Chunk(1, "c", 1)]
    finally:
        storage.close()


def test_a_write_that_the_database_refuses_ends_its_session(database: str) -> None:
    """The session that the failure left must not be written with again."""
    storage = Storage(database)
    try:
        storage.claim()
        storage.append([("c", 1, b"x")], {})
        storage._next = 1
        with pytest.raises(StorageFailed, match="UniqueViolation"):
            storage.append([("c", 1, b"y")], {})
        end_sessions(database)
        storage.claim()
        assert locks(database) == 1
        assert storage.append([("c", 1, b"y")], {}) == [Chunk(2, "c", 1)]
    finally:
        storage.close()


def test_a_failure_of_the_database_quotes_nothing(database: str) -> None:
    """PostgreSQL tells which value was there already; neither the error nor what it came from is passed on."""
    storage = Storage(database)
    token = Token("first", "ann", "read")
    storage.add_token(token, "a1b2c3")
    with pytest.raises(StorageFailed) as failure:
        storage.add_token(replace(token, id="second"), "a1b2c3")
    storage.close()
    assert "a1b2c3" not in str(failure.value)
    assert failure.value.__context__ is None
    assert failure.value.__cause__ is None


def test_a_session_without_the_lock_never_writes(database: str) -> None:
    first, second = Storage(database), Storage(database)
    try:
        first.claim()
        for _ in range(2):
            with pytest.raises(FileRefused, match="another process serves this store"):
                second.claim()
            with pytest.raises(StorageFailed):
                second.append([("c", 1, b"x")], {})
        first.close()
        second.claim()
        assert second.append([("c", 1, b"x")], {}) == [Chunk(1, "c", 1)]
    finally:
        first.close()
        second.close()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("reported_meanwhile", [True, False])
def test_reports_resume_after_the_database_restarts(
    tmp_path: Path, own_postgresql: Any, shared: bool, reported_meanwhile: bool
) -> None:
    """While the database is away /ready says 503; once it says 200 again, reports are stored."""
    token = new_token(own_postgresql.url, "admin")
    server = Server(tmp_path, ["--store", own_postgresql.url, *(["--shared"] if shared else []), "--timeout", "10"])
    server.start()
    try:
        admin = server.client(token)
        address = f"/v1/collections/{new_collection(admin)}"
        batch = objects(4)
        assert admin.post(f"{address}/reports", json=batch[:1]).status_code == 202
        assert admin.get("/ready").status_code == 200
        own_postgresql.stop()
        if reported_meanwhile:
            assert admin.post(f"{address}/reports", json=batch[1:2]).status_code == 503
            assert admin.post(f"{address}/reports", json=batch[1:2]).status_code == 503
        until(lambda: admin.get("/ready").status_code == 503)
        own_postgresql.start()
        until(lambda: admin.get("/ready").status_code == 200)
        answer = admin.post(f"{address}/reports", json=batch[1:])
        assert (answer.status_code, answer.json()["accepted"]) == (202, 3)
        assert admin.get(address).json()["reports"] == 4
    finally:
        assert server.stop() == 0


def test_a_session_that_died_unnoticed_is_replaced_before_a_report_needs_it(tmp_path: Path, database: str) -> None:
    token = new_token(database, "admin")
    server = Server(tmp_path, ["--store", database, "--shared"]).start()
    try:
        admin = server.client(token)
        address = f"/v1/collections/{new_collection(admin)}"
        end_sessions(database)
        until(lambda: any(line["event"] == "store regained" for line in server.lines()))
        assert admin.post(f"{address}/reports", json=objects(1)).status_code == 202
    finally:
        assert server.stop() == 0


# Reports.


class Failing(Storage):
    """A store whose writes fail before they take place."""

    broken = False

    def append(self, *written: Any) -> list[Chunk]:
        if self.broken:
            raise StorageFailed("the disk is full")
        return super().append(*written)


def test_counters_that_a_failed_write_took_with_it_are_written_again(tmp_path: Path) -> None:
    async def work() -> None:
        storage = Failing(str(tmp_path / "store.db"))
        storage.claim()
        aggregates = Aggregates(storage)
        aggregate = aggregates.create("x", PROTOCOL.to_json(), None)
        collecting = Collecting(storage, aggregates, Limits(waiting=1 << 20), Metrics())
        collecting.start()
        message = b"".join(PROTOCOL.to_bytes(PROTOCOL.report([["a"]])))
        aggregate.refused["malformed"] += 3
        storage.broken = True
        with pytest.raises(StorageFailed):
            await collecting.submit(aggregate, message)
        storage.broken = False
        assert await collecting.submit(aggregate, message) == Outcome(1, 0, 0)
        await collecting.stop()
        (row,) = storage.collections()
        assert row.refused["malformed"] == 3
        storage.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    "protocol",
    [
        local.SubsetHashing(epsilon=2.0, max_items=1),  # numbers
        local.PrivSketchAsPublished(epsilon=1.0, rows=4, width=16),  # bytes
    ],
    ids=lambda protocol: protocol.name,
)
def test_a_file_of_reports_says_nothing_about_their_order(protocol: Any) -> None:
    table = protocol.report([["a"], ["b"], ["c"]] * 40)
    forwards, backwards = protocol.collector(), protocol.collector()
    for row in range(len(table)):
        forwards.add(table.slice(row, 1))
        backwards.add(table.slice(len(table) - 1 - row, 1))
    first, second = forwards.to_document().arrays, backwards.to_document().arrays
    assert first.keys() == second.keys()
    assert all(np.array_equal(np.asarray(first[name]), np.asarray(second[name])) for name in first)
    again = local.Collector.from_document(forwards.to_document())
    assert again.users == len(table)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("faults")
    store = str(folder / "faults.db")
    running_one = Server(folder, ["--store", store, "--timeout", "2"], {"token": new_token(store, "admin")})
    running_one.start()
    try:
        yield running_one
    finally:
        assert running_one.stop() == 0


def connect(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def test_a_collection_takes_nothing_once_it_is_closed(server: Server) -> None:
    """A request that began before the end, and whose body comes after it, is too late."""
    token = server.environment["token"]
    admin = server.client(token)
    address = f"/v1/collections/{new_collection(admin)}"
    body = json.dumps(objects(3)).encode()
    head = (
        f"POST {address}/reports HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with connect(server) as slow:
        slow.sendall(head.encode() + body[:10])
        time.sleep(0.3)
        assert admin.post(f"{address}/close").json()["closed"]
        slow.sendall(body[10:])
        assert b" 409 " in slow.recv(4096).splitlines()[0]
    assert admin.get(address).json()["reports"] == 0


def test_when_a_collection_is_closed_all_that_was_taken_is_counted(tmp_path: Path) -> None:
    """Whoever waits in the queue is answered, and counted, before the answer to close."""

    async def work() -> None:
        async with running(Settings(store=str(tmp_path / "store.db"))) as service:
            aggregate = service.aggregates.create("x", PROTOCOL.to_json(), None)
            messages = PROTOCOL.to_bytes(PROTOCOL.report([["a"]] * 50))
            waiting = [asyncio.create_task(service.collecting.submit(aggregate, each)) for each in messages]
            await asyncio.sleep(0)
            service.aggregates.close(aggregate)
            assert await service.collecting.submit(aggregate, b"") == Outcome(0, 0, 0)
            assert aggregate.reports == 50
            assert [await each for each in waiting] == [Outcome(1, 0, 0)] * 50

    asyncio.run(work())


def test_a_store_that_hangs_keeps_nobody_waiting_and_doubles_nothing(server: Server) -> None:
    admin = server.client(server.environment["token"])
    address = f"/v1/collections/{new_collection(admin)}"
    mine = objects(3)
    other = sqlite3.connect(server.options[1], isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        hanging = admin.post(f"{address}/reports", json=mine)
        assert (hanging.status_code, hanging.json()["error"]["code"]) == (503, "too_slow")
    finally:
        other.close()
    assert admin.post(f"{address}/reports", json=mine).status_code == 202
    assert admin.post(f"{address}/reports", json=mine).json()["repeated"] == 3
    assert admin.get(address).json()["reports"] == 3


# Strangers, and people in no hurry.


@pytest.mark.parametrize("start", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "])
def test_whoever_does_not_finish_the_head_of_a_request_is_let_go(server: Server, start: bytes) -> None:
    with connect(server) as slow:
        slow.sendall(start)
        assert slow.recv(100) == b""


def test_an_open_connection_may_rest_between_requests_and_not_within_one(server: Server) -> None:
    whole = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(server) as visitor:
        for _ in range(2):
            visitor.sendall(whole)
            got = b""
            while not got.endswith(b"}"):
                got += visitor.recv(4096)
            assert got.startswith(b"HTTP/1.1 200")
            time.sleep(2.5)  # longer than a head may take
        visitor.sendall(whole[:20])
        assert visitor.recv(4096) == b""


def test_the_head_of_a_request_has_a_limit(server: Server) -> None:
    line = b"X-Long: " + b"x" * 1000 + b"\r\n"
    with connect(server) as long:
        long.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + 60 * line + b"\r\n")
        assert long.recv(4096).startswith(b"HTTP/1.1 200")
    with connect(server) as longer:
        longer.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises(OSError, match=r"reset|pipe"):
            longer.sendall(50_000 * line)


@pytest.mark.parametrize("takes", [False, True])
def test_whoever_takes_nothing_of_an_answer_is_let_go(server: Server, takes: bool) -> None:
    """Answers wait in memory until they are taken; slowly is well, not at all is not."""
    token = server.environment["token"]
    address = f"/v1/collections/{new_collection(server.client(token))}"
    octets = {"Content-Type": "application/octet-stream"}
    for _ in range(5):
        batch = b"".join(PROTOCOL.to_bytes(PROTOCOL.report([["apple"]] * 80_000)))
        assert server.client(token).post(f"{address}/reports", content=batch, headers=octets).status_code == 202
    assert len(server.client(token).get(f"{address}/export").content) > 5 << 20
    address += "/export"
    head = f"GET {address} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    with socket.socket() as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
        reader.settimeout(20)
        host, port = server.url.removeprefix("http://").split(":")
        reader.connect((host, int(port)))
        reader.sendall(head.encode())
        time.sleep(0 if takes else 6)
        got = bytearray()
        try:
            while part := reader.recv(1 << 18):
                got += part
                time.sleep(0.05 if takes else 0)
        except ConnectionResetError:
            assert not takes
    length = int(got.partition(b"content-length: ")[2].partition(b"\r")[0])
    assert (len(got.partition(b"\r\n\r\n")[2]) == length) == takes


def test_of_strangers_no_question_is_read(server: Server) -> None:
    """Their body is not even waited for: here it never comes."""
    for address in ("/v1/releases/x/estimate", "/v1/releases/x/density", "/v1/collections", "/v1/collections/x/top"):
        kind = "Content-Type: application/json\r\nContent-Length: 1000"
        head = f"POST {address} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n\r\n"
        with connect(server) as stranger:
            stranger.sendall(head.encode() + b"{")
            assert b" 401 " in stranger.recv(4096).splitlines()[0], address


def test_candidates_are_limited_as_keys_are(server: Server) -> None:
    admin = server.client(server.environment["token"])
    address = f"/v1/collections/{new_collection(admin)}"
    assert admin.post(f"{address}/reports", json=objects(5)).status_code == 202
    for number, status in ((10_000, 200), (10_001, 422)):
        keys = [str(key) for key in range(number)]
        assert admin.post(f"{address}/top", json={"n": 1, "candidates": keys}).status_code == status
        assert admin.post(f"{address}/estimate", json={"keys": keys}).status_code == status


def test_work_that_nobody_waits_for_is_not_begun(tmp_path: Path) -> None:
    async def work() -> None:
        limits = Limits(timeout=0.2)
        async with running(Settings(store=str(tmp_path / "slow.db"), limits=limits)) as service:
            gate = threading.Event()
            begun: list[int] = []
            jobs = [lambda: gate.wait(20)] * 4 + [lambda: begun.append(1)] * 20
            told = await asyncio.gather(*(service.run(job) for job in jobs), return_exceptions=True)
            assert [type(each) for each in told] == [Refused] * 24
            gate.set()
            assert await service.run(lambda: True)
            assert begun == []

    asyncio.run(work())


def test_many_ranges_are_answered_in_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    sketch = dps.RangeSketch(bits=8, unit=dps.per_record())
    sketch.update(np.arange(200).repeat(50))
    release = sketch.release(epsilon=1.0, delta=1e-6)
    asked = [ask for low in range(100) for ask in (f"{low}:{low + 50}", f"{low}%")]
    single = [release.range(low, low + 50) for low in range(100)], [release.quantile(low / 100) for low in range(100)]
    searches = 0
    combined = type(release)._combined

    def counted(*args: Any) -> Any:
        nonlocal searches
        searches += 1
        return combined(*args)

    monkeypatch.setattr(type(release), "_combined", counted)
    found = answer(release, list(asked), 0.95, None)
    assert searches < 40
    assert found.key == asked
    for side in ("value", "low", "high"):
        expected = [getattr(one, side) for pair in zip(*single, strict=True) for one in pair]
        np.testing.assert_allclose(getattr(found, side), np.array(expected, dtype=float), rtol=1e-12)


# Names and words.


def test_a_mounted_file_may_have_any_name(tmp_path: Path) -> None:
    sketch = dps.CountSketch(rows=3, width=16, unit=dps.per_record())
    path = os.fsdecode(os.fsencode(tmp_path) + b"/odd\xff.dps")
    sketch.release(epsilon=1.0, delta=1e-6).save(path)
    storage = Storage(str(tmp_path / "store.db"))
    releases = Releases(storage)
    releases.load((tmp_path,))
    (view,) = releases.views()
    assert view["name"] == "odd\\xff"
    storage.close()


def test_the_event_loop_is_not_quoted_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    root, ours = logging.getLogger(), logging.getLogger("dpsketch.server")
    before = root.handlers, root.level, ours.level
    try:
        telemetry.configure("info")

        async def work() -> None:
            asyncio.get_running_loop().call_soon(lambda key: 1 / 0, "a-secret-key")
            await asyncio.sleep(0.01)

        asyncio.run(work())
    finally:
        root.handlers, root.level = before[0], before[1]
        ours.setLevel(before[2])
    (line,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert (line["logger"], line["error"]) == ("asyncio", "ZeroDivisionError")
    assert "secret" not in json.dumps(line)
