"""Hostile strangers before the real service: forgers, held sockets, other sites, other people's locks."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dpsketch.server.database import lock_file
from serving import PROTOCOL, Server, new_collection, new_token, objects

OCTETS = "application/octet-stream"
JSON = "application/json"


def forged(number: int, key: str) -> bytes:
    """Compact reports that all name the key's own bucket, as no honest draw does."""
    seeds = np.arange(number, dtype=np.uint32) % PROTOCOL.seeds
    words = np.zeros((number, 3), np.uint64)
    columns = {
        "id": np.random.default_rng(number).integers(1, 2**63, (number, 2), np.uint64),
        "seed": seeds.astype(np.uint16),
        "bucket": PROTOCOL.decide(PROTOCOL.read([[key]] * number), seeds, words),
    }
    return PROTOCOL.form.to_bytes(columns)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service as it comes, open to all."""
    folder = tmp_path_factory.mktemp("attacks")
    store = str(folder / "attacks.db")
    options = ["--store", store, "--public-read", "--public-collect"]
    with Server(folder, options, {"token": new_token(store, "admin")}) as running:
        yield running


def admin(server: Server) -> httpx.Client:
    return server.client(server.environment["token"])


def share(server: Server, address: str, key: str) -> dict[str, Any]:
    answer = server.client().post(f"{address}/estimate", json={"keys": [key]}).json()
    return {**answer["estimates"][0], "implausible": answer["implausible"], "note": answer["note"]}


def test_without_a_token_a_request_carries_one_report(server: Server) -> None:
    address = f"/v1/collections/{new_collection(admin(server))}"
    assert admin(server).post(f"{address}/reports", json=objects(1000)).status_code == 202
    before = share(server, address, "pear")
    attack = forged(100_000, "pear")
    assert len(attack) == 3_100_000
    for content, kind in ((attack, OCTETS), (json.dumps(objects(2)).encode(), JSON)):
        for route in ("reports", "check"):
            answer = httpx.post(f"{server.url}{address}/{route}", content=content, headers={"Content-Type": kind})
            assert answer.status_code == 413, kind
    many = httpx.post(f"{server.url}{address}/reports", content=forged(2, "pear"), headers={"Content-Type": OCTETS})
    assert (many.status_code, many.json()["error"]["code"]) == (413, "too_many")
    assert share(server, address, "pear") == before
    one = server.client().post(f"{address}/reports", content=forged(1, "pear"), headers={"Content-Type": OCTETS})
    assert one.status_code == 202


def test_an_address_has_a_rate_and_a_quota_in_reports_and_proxies_tell_addresses(tmp_path: Path) -> None:
    store = str(tmp_path / "quota.db")
    token = new_token(store, "admin")
    options = ["--store", store, "--public-read", "--public-collect", "--client-header", "X-Forwarded-For"]
    limits = ["--address-quota", "5", "--address-rate", "1000", "--collection-rate", "4", "--max-reports", "40"]
    with Server(tmp_path, [*options, *limits]) as server:
        address = f"/v1/collections/{new_collection(server.client(token))}"

        def send(whom: str, one: Any = None) -> httpx.Response:
            one = objects(1)[0] if one is None else one
            return server.client().post(f"{address}/reports", json=one, headers={"X-Forwarded-For": whom})

        mine = objects(1)[0]
        assert send("203.0.113.7", mine).json()["accepted"] == 1
        # A report that is sent again is no second one, and what a caller writes before our proxy's word is no address.
        assert [send(f"203.0.113.{n}, 203.0.113.7", mine).json()["repeated"] for n in range(3)] == [1] * 3
        time.sleep(1.1)
        codes = [send("203.0.113.7").status_code for _ in range(4)]
        assert codes == [202] * 4
        time.sleep(1.1)
        for said in ("203.0.113.7", "198.51.100.99, 203.0.113.7"):
            over = send(said)
            assert (over.status_code, over.json()["error"]["code"]) == (429, "quota_exceeded"), said
        # One network of IPv6 is one person; another address has a quota of its own.
        assert {send(f"2001:db8:0:1::{n:x}").status_code for n in range(1, 4)} == {202}
        time.sleep(1.1)
        assert [send(f"2001:db8:0:1::{n:x}").status_code for n in range(4, 7)] == [202, 202, 429]
        # All strangers together have a rate for each collection.
        assert 429 in {send(f"198.51.100.{n}").status_code for n in range(20)}
        # A token has none of these, but a collection is full at some time.
        batch = server.client(token).post(f"{address}/reports", json=objects(20))
        assert batch.json()["accepted"] == 20
        full = server.client(token).post(f"{address}/reports", json=objects(20))
        assert (full.status_code, full.json()["error"]["code"]) == (409, "full")


def test_shares_that_cannot_be_are_flagged(server: Server) -> None:
    """At six deviations honest reports are flagged with probability below 1e-8; forged ones move a share far beyond."""
    address = f"/v1/collections/{new_collection(admin(server))}"
    honest = PROTOCOL.to_bytes(PROTOCOL.report([["apple"]] * 3000))
    octets = {"Content-Type": OCTETS}
    assert admin(server).post(f"{address}/reports", content=b"".join(honest), headers=octets).status_code == 202
    fine = share(server, address, "apple")
    assert (fine["implausible"], fine["note"]) == (False, "")
    assert fine["value"] > 0.9
    assert admin(server).post(f"{address}/reports", content=forged(9000, "pear"), headers=octets).status_code == 202
    moved = share(server, address, "pear")
    assert moved["low"] > 1
    assert moved["implausible"]
    assert "forged" in moved["note"]
    clipped = "shares of people, clipped: at most 1 item counted of each"
    assert server.client().get(f"{address}/top?format=csv").headers["dpsketch-counts"] == clipped
    top = server.client().get(f"{address}/top").json()
    assert top["counts"] == clipped
    assert (top["implausible"], top["implausible_keys"]) == (True, [0])
    assert server.client().get(f"{address}/top?format=csv").headers["dpsketch-implausible"] == "true"


def is_open(connection: socket.socket) -> bool:
    """Say whether the other side has not ended a connection."""
    connection.settimeout(0.01)
    try:
        while True:
            if connection.recv(65536) == b"":
                return False
    except TimeoutError:
        return True
    except OSError:
        return False


def test_sockets_cannot_be_held_and_overload_is_said_in_json(tmp_path: Path) -> None:
    """An answer whose body is never read, a body that drips, empty lines between requests: each has a timer."""
    options = ["--store", str(tmp_path / "held.db"), "--timeout", "1", "--max-connections", "12", "--public-read"]
    server = Server(tmp_path, options).start()
    head = "POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    try:
        held = [server.connect() for _ in range(20)]
        for one in held[:18]:
            one.sendall(head.encode() + b"x")
        for one in held[18:]:
            one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n\r\n")
        crowded = httpx.get(f"{server.url}/v1/session")
        assert crowded.status_code == 503
        assert crowded.json()["error"]["code"] == "busy"
        assert crowded.headers["content-type"].startswith("application/json")
        assert httpx.get(f"{server.url}/health").status_code == 200
        end = time.monotonic() + 20
        while sum(map(is_open, held[:18])) and time.monotonic() < end:
            for one in held[:18]:
                try:
                    one.sendall(b"x")  # dripping on does not help
                except OSError:
                    continue
            time.sleep(0.2)
        assert not any(is_open(one) for one in held[:18])
        assert httpx.get(f"{server.url}/v1/session").status_code == 200
    finally:
        for one in held:
            one.close()
        assert server.stop() == 0


def asked(one: socket.socket) -> bytes:
    """Return the status of a question on a connection that may stay open, and read all of its answer."""
    with contextlib.suppress(OSError):
        one.sendall(b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with one.makefile("rb") as answer:
        status, length = answer.readline()[9:12], 0
        if not status:  # it was closed
            return b""
        while (line := answer.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        answer.read(length)
    return status


def test_a_connection_that_was_served_is_served_on(tmp_path: Path) -> None:
    """Also where the address opens more than it may: its own, or that of colleagues who share it."""
    options = ["--store", str(tmp_path / "places.db"), "--max-connections", "64", "--public-read"]
    server = Server(tmp_path, options).start()
    with contextlib.ExitStack() as held:
        held.callback(server.stop)
        first = [held.enter_context(server.connect()) for _ in range(16)]
        assert {asked(one) for one in first} == {b"200"}
        idle, second = (held.enter_context(server.connect()) for _ in range(2))
        assert asked(second) == b"503"
        assert {asked(one) for one in first} == {b"200"}
        first.pop().close()
        end = time.monotonic() + 20
        while asked(idle) != b"200":  # which gets the place that is free
            assert time.monotonic() < end
            idle = held.enter_context(server.connect())
        assert {asked(one) for one in first} == {b"200"}


def test_the_end_does_not_wait_for_a_body_that_does_not_come(tmp_path: Path) -> None:
    """SIGTERM ends the service in order: uvicorn cancels no task because its time is over."""
    store = str(tmp_path / "ends.db")
    token = new_token(store, "admin")
    server = Server(tmp_path, ["--store", store, "--timeout", "600"]).start()
    address = f"/v1/collections/{new_collection(server.client(token))}/reports"
    kind = "Content-Type: application/octet-stream\r\nContent-Length: 1000"
    head = f"POST {address} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{kind}\r\n\r\n"
    with server.connect() as slow:
        slow.sendall(head.encode() + b"x")
        assert server.client(token).get("/v1/session").status_code == 200
        assert server.stop() == 0
        assert slow.recv(4096) == b""
    ended = [line for line in server.lines() if line["level"] == "error"]
    assert ended == []


def test_other_sites_and_other_names_are_refused(server: Server) -> None:
    address = f"{server.url}/v1/collections/{new_collection(admin(server))}/reports"
    body = json.dumps(objects(1)[0]).encode()
    port = server.url.rpartition(":")[2]
    for headers in (
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": f"http://evil.example:{port}", "Content-Type": JSON},
    ):
        answer = httpx.post(address, content=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "cross_site"), headers
    for headers in ({"Origin": server.url}, {"Sec-Fetch-Site": "same-origin"}, {}):
        one = json.dumps(objects(1)[0]).encode()
        assert httpx.post(address, content=one, headers={"Content-Type": JSON, **headers}).status_code == 202, headers
    rebound = httpx.get(f"{server.url}/v1/releases", headers={"Host": f"evil.example:{port}"})
    assert (rebound.status_code, rebound.json()["error"]["code"]) == (421, "other_host")
    assert httpx.get(f"{server.url}/health", headers={"Host": "evil.example"}).status_code == 200
    assert httpx.get(f"{server.url}/v1/releases", headers={"Host": f"localhost:{port}"}).status_code == 200


def test_the_lock_is_private_and_a_strangers_does_not_block(server: Server) -> None:
    assert Path(f"{server.options[1]}.lock").stat().st_mode & 0o777 == 0o600
    if os.geteuid() != 0 or not Path("/proc/locks").exists():
        pytest.skip("only root can start a process of somebody else, and only Linux lists locks")
    folder = Path(tempfile.mkdtemp(prefix="dpsketch-lock-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        store, beside = folder / "store.db", folder / "store.db.lock"
        store.touch()
        beside.touch()
        beside.chmod(0o666)  # as an earlier version, or an umask, may have left it
        hold = (
            "import sqlite3,sys;c=sqlite3.connect(sys.argv[1]);c.execute('BEGIN EXCLUSIVE');print(1,flush=True);input()"
        )
        nobody = pwd.getpwnam("nobody").pw_uid
        folder.chmod(0o777)  # SQLite asks whether there is a journal
        with subprocess.Popen(
            ["/usr/bin/env", "python3", "-c", hold, str(beside)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, user=nobody, cwd="/",
        ) as stranger:  # fmt: skip
            assert stranger.stdout is not None
            assert stranger.stdout.readline() == "1\n"
            lock_file(store).close()
            assert beside.stat().st_mode & 0o777 == 0o600
            stranger.kill()
    finally:
        shutil.rmtree(folder)
