"""Hostile strangers before the real service: forgers, held sockets, other sites, other people's locks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dpsketch.server.settings import Limits, Settings
from serving import PROTOCOL, Server, inside, new_collection, new_token, objects, wait_for

OCTETS = {"Content-Type": "application/octet-stream"}
JSON = {"Content-Type": "application/json"}


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
def server(serve: Callable[..., Server]) -> Server:
    """The service as it comes, open to all."""
    return serve("--public-read", "--public-collect")


def admin(server: Server) -> httpx.Client:
    return server.client(server.environment["token"])


def share(server: Server, address: str, key: str) -> dict[str, Any]:
    answer = server.client().post(f"{address}/estimate", json={"keys": [key]}).json()
    return {**answer["estimates"][0], "implausible": answer["implausible"], "note": answer["note"]}


def test_without_a_token_a_request_carries_one_report(server: Server) -> None:
    address = f"/v1/collections/{new_collection(admin(server))}"
    assert admin(server).post(f"{address}/reports", json=objects(1000)).status_code == 202
    before = share(server, address, "pear")
    for content, kind in (
        (forged(100_000, "pear"), OCTETS), (forged(2, "pear"), OCTETS), (json.dumps(objects(2)).encode(), JSON)
    ):  # fmt: skip
        for route in ("reports", "check"):
            assert httpx.post(f"{server.url}{address}/{route}", content=content, headers=kind).status_code == 413
    assert share(server, address, "pear") == before
    one = server.client().post(f"{address}/reports", content=forged(1, "pear"), headers=OCTETS)
    assert one.status_code == 202


def told(folder: Path, sent: list[tuple[str, Any]], **limits: Any) -> list[str]:
    """What whoever reports in turn is told: strangers behind a proxy that names them, and "" with a token."""
    store = str(folder / f"{uuid.uuid4()}.db")
    known, fast = (
        {"Authorization": f"Bearer {new_token(store, 'admin')}"},
        {"address_rate": 1e6, "collection_rate": 1e6},
    )
    allowed = Limits(**{**fast, **limits})
    settings = Settings(store, public=frozenset({"collect"}), client_header="X-Forwarded-For", limits=allowed)

    async def run() -> list[str]:
        async with inside(settings) as client:
            asked = {"name": "x", "spec": PROTOCOL.to_json()}
            made = await client.post("/v1/collections", json=asked, headers=known)
            address, words = f"/v1/collections/{made.json()['id']}/reports", []
            for whom, report in sent:
                headers = {"X-Forwarded-For": whom} if whom else known
                answer = (await client.post(address, json=report, headers=headers)).json()
                words += [answer["error"]["code"]] if "error" in answer else [each for each in answer if answer[each]]
            return words

    return asyncio.run(run())


def test_an_address_has_a_rate_and_a_quota_in_reports_and_proxies_tell_addresses(tmp_path: Path) -> None:
    """Rates are so low that none gives anything back while the test runs."""
    mine, *more = objects(20)
    one, other = "203.0.113.7", "203.0.113.8"
    # A report that is sent again is no second one, and what a caller writes before our proxy's word is no address.
    again = [(f"203.0.113.{n}, {one}", mine) for n in range(3)]
    sent = [(one, mine), *again, (one, more.pop()), (one, more.pop()), (f"198.51.100.99, {one}", more.pop())]
    assert told(tmp_path, sent, address_quota=2) == [
        "accepted", *["repeated"] * 3, "accepted", "quota_exceeded", "quota_exceeded",
    ]  # fmt: skip
    # One network of IPv6 is one person; another address, or whoever has a token, has a quota of its own or none.
    network = [(f"2001:db8:0:1::{n}", more.pop()) for n in range(1, 4)]
    sent = [*network, (other, more.pop()), ("", more.pop()), ("", more.pop()), ("", more.pop())]
    assert told(tmp_path, sent, address_quota=2) == ["accepted", "accepted", "quota_exceeded", *["accepted"] * 4]
    sent = [(who, more.pop()) for who in (one, one, other, "")]
    assert told(tmp_path, sent, address_rate=0.01) == ["accepted", "rate_limited", "accepted", "accepted"]
    # All strangers together have a rate for each collection.
    assert told(tmp_path, sent, collection_rate=0.01) == ["accepted", "rate_limited", "rate_limited", "accepted"]


def test_shares_that_cannot_be_are_flagged(server: Server) -> None:
    """At six deviations honest reports are flagged with probability below 1e-8; forged ones move a share far beyond."""
    address = f"/v1/collections/{new_collection(admin(server))}"
    honest = b"".join(PROTOCOL.to_bytes(PROTOCOL.report([["apple"]] * 3000)))
    assert admin(server).post(f"{address}/reports", content=honest, headers=OCTETS).status_code == 202
    fine = share(server, address, "apple")
    assert (fine["implausible"], fine["note"]) == (False, "")
    assert fine["value"] > 0.9
    assert admin(server).post(f"{address}/reports", content=forged(9000, "pear"), headers=OCTETS).status_code == 202
    moved = share(server, address, "pear")
    assert moved["low"] > 1
    assert moved["implausible"]
    assert "forged" in moved["note"]
    clipped = "shares of people, clipped: at most 1 item counted of each"
    top = server.client().get(f"{address}/top").json()
    assert (top["counts"], top["implausible"], top["implausible_keys"]) == (clipped, True, [0])
    told = server.client().get(f"{address}/top?format=csv").headers
    assert (told["dpsketch-counts"], told["dpsketch-implausible"]) == (clipped, "true")


def is_open(connection: socket.socket) -> bool:
    """Say whether the other side has not ended a connection."""
    connection.settimeout(0.01)
    try:
        while connection.recv(65536):
            continue
    except OSError as error:
        return isinstance(error, TimeoutError)
    return False


def test_sockets_cannot_be_held_and_overload_is_said_in_json(tmp_path: Path) -> None:
    """An answer whose body is never read, a body that drips, empty lines between requests: each has a timer."""
    options = ["--store", str(tmp_path / "held.db"), "--timeout", "1", "--max-connections", "12", "--public-read"]
    head = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nx"
    with Server(tmp_path, options) as server, contextlib.ExitStack() as opened:
        held = [opened.enter_context(server.connect()) for _ in range(20)]
        for one in held[:18]:
            one.sendall(head)
        for one in held[18:]:
            one.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n\r\n")
        crowded = httpx.get(f"{server.url}/v1/session")
        assert (crowded.status_code, crowded.json()["error"]["code"]) == (503, "busy")
        assert crowded.headers["content-type"].startswith("application/json")
        assert httpx.get(f"{server.url}/health").status_code == 200

        def ended() -> bool:
            for one in held[:18]:
                with contextlib.suppress(OSError):
                    one.sendall(b"x")  # dripping on does not help
            return not any(map(is_open, held[:18]))

        wait_for(ended, 20)
        assert httpx.get(f"{server.url}/v1/session").status_code == 200


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
    with Server(tmp_path, options) as server, contextlib.ExitStack() as held:
        first = [held.enter_context(server.connect()) for _ in range(16)]
        assert {asked(one) for one in first} == {b"200"}
        assert asked(held.enter_context(server.connect())) == b"503"
        assert {asked(one) for one in first} == {b"200"}
        first.pop().close()
        wait_for(lambda: asked(held.enter_context(server.connect())) == b"200")  # which gets the place that is free
        assert {asked(one) for one in first} == {b"200"}


def test_other_sites_and_other_names_are_refused(server: Server) -> None:
    address = f"{server.url}/v1/collections/{new_collection(admin(server))}/reports"
    port = server.url.rpartition(":")[2]
    for headers, code in (
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": f"http://evil.example:{port}"}, 403),
        ({"Origin": server.url}, 202),
        ({"Sec-Fetch-Site": "same-origin"}, 202),
        ({}, 202),
    ):
        answer = httpx.post(address, json=objects(1)[0], headers=headers)
        assert answer.status_code == code, headers
        assert code == 202 or answer.json()["error"]["code"] == "cross_site"
    rebound = httpx.get(f"{server.url}/v1/releases", headers={"Host": f"evil.example:{port}"})
    assert (rebound.status_code, rebound.json()["error"]["code"]) == (421, "other_host")
    assert httpx.get(f"{server.url}/health", headers={"Host": "evil.example"}).status_code == 200
    assert httpx.get(f"{server.url}/v1/releases", headers={"Host": f"localhost:{port}"}).status_code == 200
