"""What the service does when something goes wrong beside it: sessions, disks, and people in no hurry."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import psycopg
import pytest

from dpsketch import local
from dpsketch.errors import FileRefused
from dpsketch.server.database import StorageFailed
from dpsketch.server.reports import Outcome
from dpsketch.server.service import running
from dpsketch.server.settings import Settings
from dpsketch.server.storage import Chunk, Storage, Token
from serving import OPEN, PROTOCOL, Server, new_collection, objects, wait_for


@pytest.fixture
def storage(database: str) -> Iterator[Callable[[], Storage]]:
    """Open a store in PostgreSQL."""
    opened: list[Storage] = []

    def open_one() -> Storage:
        opened.append(Storage(database))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


def test_a_write_that_the_database_refuses_ends_its_session(database: str, storage: Callable[[], Storage]) -> None:
    """The session that the failure left must not be written with again."""
    store = storage()
    store.claim()
    store.append([("c", 1, b"x")], {})
    store._next = 1
    with pytest.raises(StorageFailed, match="UniqueViolation"):
        store.append([("c", 1, b"y")], {})
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        store.claim()
        locks = (
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        assert connection.execute(locks).fetchone() == (1,)
    assert store.append([("c", 1, b"y")], {}) == [Chunk(2, "c", 1)]


def test_a_failure_of_the_database_quotes_nothing(storage: Callable[[], Storage]) -> None:
    """PostgreSQL tells which value was there already; neither the error nor what it came from is passed on."""
    store, token = storage(), Token("first", "ann", "read")
    store.add_token(token, "a1b2c3")
    with pytest.raises(StorageFailed) as failure:
        store.add_token(replace(token, id="second"), "a1b2c3")
    assert "a1b2c3" not in str(failure.value)
    assert failure.value.__context__ is None
    assert failure.value.__cause__ is None


def test_a_session_without_the_lock_never_writes(storage: Callable[[], Storage]) -> None:
    first, second = storage(), storage()
    first.claim()
    for _ in range(2):
        with pytest.raises(FileRefused, match="another process serves this store"):
            second.claim()
        with pytest.raises(StorageFailed):
            second.append([("c", 1, b"x")], {})
    first.close()
    second.claim()
    assert second.append([("c", 1, b"x")], {}) == [Chunk(1, "c", 1)]


@pytest.fixture(scope="module")
def server(serve: Callable[..., Server]) -> Server:
    return serve("--timeout", "2")


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
        assert admin.get(address).json()["reports"] == 0  # which is answered after the head was read
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
    with closing(sqlite3.connect(server.options[1], isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        hanging = admin.post(f"{address}/reports", json=mine)
        assert (hanging.status_code, hanging.json()["error"]["code"]) == (503, "too_slow")
    assert admin.post(f"{address}/reports", json=mine).status_code == 202
    assert admin.post(f"{address}/reports", json=mine).json()["repeated"] == 3
    assert admin.get(address).json()["reports"] == 3


def test_whoever_does_not_finish_a_request_is_let_go(server: Server) -> None:
    """In its head, in its body, or before it began; all wait at the same time."""
    token = server.environment["token"]
    begun = f"POST /v1/collections/{new_collection(server.client(token))}/reports HTTP/1.1\r\nHost: localhost\r\n"
    kind = f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    with server.connect() as head, server.connect() as silent, server.connect() as half:
        head.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
        half.sendall((begun + kind).encode())
        assert b" 408 " in half.recv(4096).splitlines()[0]
        assert head.recv(100) == b""
        assert silent.recv(100) == b""


def test_of_strangers_no_question_is_read(server: Server) -> None:
    """Their body is not even waited for: here it never comes."""
    for address in ("/v1/releases/x/estimate", "/v1/releases/x/density", "/v1/collections", "/v1/collections/x/top"):
        kind = "Content-Type: application/json\r\nContent-Length: 1000"
        head = f"POST {address} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n\r\n"
        with server.connect() as stranger:
            stranger.sendall(head.encode() + b"{")
            assert b" 401 " in stranger.recv(4096).splitlines()[0], address


@pytest.fixture
def disk() -> Iterator[Path]:
    """A file system of a few megabytes, in memory; that takes root."""
    if os.geteuid() != 0:
        pytest.skip("only root makes a file system; the disk cannot be filled")
    folder = Path(tempfile.mkdtemp(prefix="dpsketch-disk-", dir="/tmp"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m,mode=0755", "dpsketch-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("this machine makes no file systems; the disk cannot be filled")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        folder.rmdir()


def test_a_full_disk_loses_nothing(disk: Path, tmp_path: Path, serve: Callable[..., Server]) -> None:
    """Whoever reports is told; full, and mended by room, the service has what it acknowledged."""
    ballast, acknowledged = disk / "ballast", set[bytes]()
    server = serve(*OPEN, store=str(disk / "store.db"))
    address = f"/v1/collections/{new_collection(server.client(server.environment['token']))}"

    def send(batch: list[bytes]) -> httpx.Response:
        octets = {"Content-Type": "application/octet-stream"}
        answer = server.client().post(f"{address}/reports", content=b"".join(batch), headers=octets)
        if answer.status_code == 202:
            acknowledged.update(each[9:25] for each in batch)
        return answer

    def held() -> set[bytes]:
        exported = tmp_path / "exported.dps"
        exported.write_bytes(server.client().get(f"{address}/export").content)
        ids = np.asarray(local.load(exported).to_document().arrays["ids"])
        return {row.tobytes() for row in ids.astype("<u8")}

    def fill() -> list[bytes]:
        """Take all but a little of the disk, report until nothing more fits, and return what was refused."""
        state = os.statvfs(disk)
        ballast.write_bytes(bytes(max(0, state.f_bavail * state.f_frsize - 400_000)))
        for _ in range(200):
            batch = PROTOCOL.to_bytes(PROTOCOL.report([["apple"]] * 2000))
            answer = send(batch)
            if answer.status_code != 202:
                break
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (503, "storage_failed")
        assert "disk is full" in error["message"]
        return batch

    refused = fill()
    # What needs no disk goes on, and readers are answered.
    assert server.client().get("/health").status_code == 200
    assert server.client().get(f"{address}/estimate?key=apple").status_code == 200
    assert held() == acknowledged
    ballast.unlink()
    wait_for(lambda: send(refused).status_code == 202)
    assert held() == acknowledged
    assert server.stop() == 0
