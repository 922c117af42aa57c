"""The service in production: workers that share a store, upgrades, backups, tokens, the life of a collection."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

import dpsketch as dps
from dpsketch.errors import DpsketchError, FileRefused, InvalidInput
from dpsketch.server import create_app
from dpsketch.server.database import back_up, restore
from dpsketch.server.settings import OPTIONS, Limits, from_environment, variable_of
from dpsketch.server.storage import Storage
from serving import OPEN, Server, dpsketch, new_collection, new_token, objects, wait_for

OCTETS = {"Content-Type": "application/octet-stream"}


def test_workers_that_share_a_store_count_every_report_once(
    tmp_path: Path, database: str, serve: Callable[..., Server]
) -> None:
    first, second = (serve("--shared", *OPEN, store=database) for _ in range(2))
    admin, others = (each.client(first.environment["token"]) for each in (first, second))
    alone = subprocess.run(
        [sys.executable, "-m", "dpsketch", "serve", "--port", "0", "--store", database],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert "another process serves this store" in alone.stderr
    address = f"/v1/collections/{new_collection(admin)}"
    wait_for(lambda: others.get(address).status_code == 200)
    batch = objects(300)
    told = [
        server.client().post(f"{address}/reports", json=batch[at : at + 100]).json()
        for at, server in ((0, first), (100, second), (50, second), (200, first), (150, second))
    ]
    assert [each["accepted"] for each in told] == [100, 100, 0, 100, 0]
    assert sum(each["repeated"] for each in told) == 200
    for server in (first, second):
        wait_for(lambda server=server: server.client().get(address).json()["reports"] == 300)
    one, other = (server.client().get(f"{address}/estimate?key=apple").json() for server in (first, second))
    assert one == other
    path = tmp_path / "up.dps"
    dps.CountSketch(rows=3, width=64, unit=dps.per_record()).release(epsilon=1.0, delta=1e-6).save(path)
    added = admin.post("/v1/releases?name=mine", content=path.read_bytes(), headers=OCTETS).json()
    file = f"/v1/releases/{added['id']}/file"
    wait_for(lambda: second.client().get(file).content == path.read_bytes())
    assert admin.post(f"{address}/close").status_code == 200
    wait_for(lambda: second.client().get(address).json()["closed"])
    assert others.delete(address).status_code == 204
    wait_for(lambda: first.client().get(address).status_code == 404)
    assert [first.stop(), second.stop()] == [0, 0]


def test_the_factory_reads_the_environment_as_the_command_line_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {variable_of(each.name): str(each.metadata["least"]) for each in OPTIONS} | {
        "DPSKETCH_STORE": str(tmp_path / "x.db"), "DPSKETCH_PUBLIC_READ": "1",
        "DPSKETCH_ALLOW_HOST": "a.example b.example",
        "DPSKETCH_MOUNT": f"/one{os.pathsep}/two", "DPSKETCH_CLIENT_HEADER": "X-Real-IP",
    }  # fmt: skip
    read = from_environment(given)
    assert (read.hosts, read.public, read.client_header) == (("a.example", "b.example"), {"read"}, "X-Real-IP")
    assert [str(mount) for mount in read.mounts] == ["/one", "/two"]
    assert all(getattr(read.limits, each.name) == each.metadata["least"] for each in OPTIONS)
    assert len(OPTIONS) == 15
    assert from_environment({"DPSKETCH_STORE": "x"}).limits == Limits()
    shared = Limits(address_quota=7, read_rate=10, timeout=30).for_one_of(4)
    assert (shared.address_quota, shared.read_rate, shared.timeout) == (1, 2.5, 30)
    wrong = {"MAX_BODY": "-1", "TIMEOUT": "inf", "PUBLIC_BATCH": "1.5", "SHARED": "?", "WORKERS": "2"}
    for name, value in wrong.items():
        with pytest.raises(InvalidInput, match=r"DPSKETCH_|workers"):
            from_environment({"DPSKETCH_STORE": "x", f"DPSKETCH_{name}": value})
    monkeypatch.delenv("DPSKETCH_STORE", raising=False)
    with pytest.raises(InvalidInput, match="DPSKETCH_STORE is not set"):
        create_app()
    monkeypatch.setenv("DPSKETCH_STORE", str(tmp_path / "x.db"))
    monkeypatch.setenv("DPSKETCH_ALLOW_HOST", "a.example")
    app = create_app()

    async def codes() -> list[int]:
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return [(await client.get(f"http://{host}/v1/session")).status_code for host in ("a.example", "b.example")]

    assert asyncio.run(codes()) == [200, 421]
    options = dpsketch("serve", "--help")
    for each in OPTIONS:
        assert f"--{each.name.replace('_', '-')}" in options, each.name


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    Storage(str(path)).close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("UPDATE dpsketch_schema SET version = version + 1")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.read_bytes()
    with pytest.raises(InvalidInput, match="PostgreSQL only"):
        Storage(str(path), shared=True)
    with pytest.raises(InvalidInput, match="another version of dpsketch has written this store"):
        Storage(str(path))
    assert path.read_bytes() == before


def test_a_restored_backup_is_equal_on_sqlite(tmp_path: Path, serve: Callable[..., Server]) -> None:
    """Taken while the service runs, and restored over a store whose write-ahead log a killed service left behind."""
    server, copy = serve(*OPEN), tmp_path / "copy.db"
    store = Path(server.options[1])
    log, admin = Path(f"{store}-wal"), server.client(server.environment["token"])
    address = f"/v1/collections/{new_collection(admin)}"

    def exported() -> bytes:
        return server.client().get(f"{address}/export").content

    assert server.client().post(f"{address}/reports", json=objects(200)).status_code == 202
    dpsketch("serve", "--store", store, "backup", copy)
    then = exported()
    assert server.client().post(f"{address}/reports", json=objects(300)).status_code == 202
    served = subprocess.run(
        [sys.executable, "-m", "dpsketch", "serve", "--store", store, "restore", copy],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert served.returncode != 0
    assert "another process serves this store" in served.stderr
    assert server.client().get(address).json()["reports"] == 500
    assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    assert log.stat().st_size > 0
    assert copy.stat().st_mode & 0o777 == 0o600
    dpsketch("serve", "--store", store, "restore", copy)
    assert not log.exists()
    server.start()
    assert exported() == then
    session = server.client(server.environment["token"]).get("/v1/session").json()
    assert session["scopes"] == ["collect", "read", "admin"]
    assert server.client().post(f"{address}/reports", json=objects(10)).json()["accepted"] == 10
    assert server.stop() == 0
    with contextlib.closing(sqlite3.connect(store)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert {path.name for path in store.parent.iterdir()} == {"service.db", "service.db.lock", "service.log"}


def test_what_is_no_backup_changes_nothing(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    new_token(str(store), "admin")
    before = store.read_bytes()
    good, newer, cut, text = (tmp_path / name for name in ("good", "newer", "cut", "text"))
    back_up(str(store), good)
    newer.write_bytes(good.read_bytes())
    with contextlib.closing(sqlite3.connect(newer)) as connection:
        connection.execute("UPDATE dpsketch_schema SET version = version + 1")
        connection.commit()
    cut.write_bytes(good.read_bytes()[: good.stat().st_size // 2])
    text.write_text("no database" * 1000)
    for wrong in (newer, cut, text, tmp_path / "none", store):
        with pytest.raises(DpsketchError):
            restore(str(store), wrong)
        assert store.read_bytes() == before
    for source, target, words in (
        (store, good, "exists already"), (tmp_path / "absent.db", tmp_path / "copy", "no store to back up")
    ):  # fmt: skip
        with pytest.raises(FileRefused, match=words):
            back_up(str(source), target)
    for command in (back_up, restore):
        with pytest.raises(InvalidInput, match="pg_dump"):
            command("postgresql://nobody@127.0.0.1:1/x", good)
    restore(str(tmp_path / "new.db"), good)
    with contextlib.closing(Storage(str(tmp_path / "new.db"))) as storage:
        assert len(storage.tokens()) == 1


@pytest.fixture(scope="module")
def server(serve: Callable[..., Server]) -> Server:
    """A service that is open to nobody without a token."""
    return serve()


def test_tokens_for_one_collection_that_expire_and_are_rotated(server: Server) -> None:
    store, admin = server.options[1], server.client(server.environment["token"])
    mine, other = (f"/v1/collections/{new_collection(admin)}" for _ in range(2))
    identifier = mine.rpartition("/")[2]
    create = ["serve", "--store", store, "token", "create", "--name", "gateway", "--json", "--scope", "collect"]
    made = json.loads(dpsketch(*create, "--collection", identifier, "--days", "1"))
    client = server.client(made["token"])
    wait_for(lambda: client.get("/v1/session").status_code == 200)
    assert client.post(f"{mine}/reports", json=objects(5)).status_code == 202
    refused = client.post(f"{other}/reports", json=objects(5))
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert [one["id"] for one in client.get("/v1/collections").json()["collections"]] == [identifier]
    rotated = json.loads(dpsketch("serve", "--store", store, "token", "rotate", made["id"], "--hours", "0", "--json"))
    assert rotated["collection"] == identifier
    fresh = server.client(rotated["token"])
    wait_for(lambda: fresh.get("/v1/session").status_code == 200)
    wait_for(lambda: client.get("/v1/session").status_code == 401)
    assert fresh.post(f"{mine}/reports", json=objects(5)).status_code == 202
    assert identifier in dpsketch("serve", "--store", store, "token", "list")
    assert rotated["token"].encode() not in Path(store).read_bytes()


@pytest.mark.full
def test_a_collection_ends_and_is_deleted_in_its_time(server: Server) -> None:
    admin, soon = server.client(server.environment["token"]), (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    kept, closing, deleted = (new_collection(admin, **end) for end in ({}, {"closes_at": soon}, {"deletes_at": soon}))
    wait_for(lambda: admin.get(f"/v1/collections/{closing}").json()["closed"])
    late = admin.post(f"/v1/collections/{closing}/reports", json=objects(1))
    assert late.json()["error"]["code"] == "closed"
    wait_for(lambda: admin.get(f"/v1/collections/{deleted}").status_code == 404)
    assert admin.post(f"/v1/collections/{kept}/reports", json=objects(10)).status_code == 202
    assert server.client().delete(f"/v1/collections/{kept}").status_code == 401
    assert admin.delete(f"/v1/collections/{kept}").status_code == 204
    with contextlib.closing(sqlite3.connect(server.options[1])) as connection:
        for table, column in (("collection", "id"), ("chunk", "collection"), ("history", "collection")):
            left = f"SELECT count(*) FROM dpsketch_{table} WHERE {column} IN (?, ?)"
            assert connection.execute(left, [kept, deleted]).fetchone() == (0,)
