"""What the service does when something goes wrong beside it: sessions that die, strangers, and people in no hurry."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dpsketch.errors import FileRefused
from dpsketch.server.database import StorageFailed
from dpsketch.server.reports import Outcome
from dpsketch.server.service import running
from dpsketch.server.settings import Settings
from dpsketch.server.storage import Chunk, Storage, Token
from serving import PROTOCOL, Server, new_collection, new_token, objects


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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("faults")
    store = str(folder / "faults.db")
    with Server(folder, ["--store", store, "--timeout", "2"], {"token": new_token(store, "admin")}) as started:
        yield started


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
    with server.connect() as slow:
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


def test_whoever_does_not_finish_the_head_of_a_request_is_let_go(server: Server) -> None:
    """Nor does whoever never begins it; both wait at the same time."""
    with server.connect() as slow, server.connect() as silent:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        assert slow.recv(100) == b""
        assert silent.recv(100) == b""


def test_the_head_of_a_request_has_a_limit(server: Server) -> None:
    line = b"X-Long: " + b"x" * 1000 + b"\r\n"
    with server.connect() as long:
        long.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + 60 * line + b"\r\n")
        assert long.recv(4096).startswith(b"HTTP/1.1 200")
    with server.connect() as longer:
        longer.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        with pytest.raises(OSError, match=r"reset|pipe"):
            longer.sendall(50_000 * line)


def test_of_strangers_no_question_is_read(server: Server) -> None:
    """Their body is not even waited for: here it never comes."""
    for address in ("/v1/releases/x/estimate", "/v1/releases/x/density", "/v1/collections", "/v1/collections/x/top"):
        kind = "Content-Type: application/json\r\nContent-Length: 1000"
        head = f"POST {address} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n\r\n"
        with server.connect() as stranger:
            stranger.sendall(head.encode() + b"{")
            assert b" 401 " in stranger.recv(4096).splitlines()[0], address
