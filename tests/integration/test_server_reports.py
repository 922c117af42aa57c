"""Reports: every form they come in, what is refused and counted, and that nothing is lost or counted twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from dpsketch import files, noise
from serving import OPEN, PROTOCOL, Server, new_collection, objects, wait_for

ARROW = "application/vnd.apache.arrow.stream"
OCTETS = "application/octet-stream"
JSON = "application/json"


def as_stream(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=7)
    return bytes(sink.getvalue().to_pybytes())


@pytest.fixture(scope="module")
def server(serve: Callable[..., Server]) -> Server:
    return serve(*OPEN)


@pytest.fixture
def collection(server: Server) -> str:
    return "/v1/collections/" + new_collection(server.client(server.environment["token"]))


def post(client: httpx.Client, address: str, content: bytes, kind: str) -> httpx.Response:
    return client.post(address, content=content, headers={"Content-Type": kind})


def counts(accepted: int = 0, repeated: int = 0, malformed: int = 0, other_spec: int = 0) -> dict[str, int]:
    return {"accepted": accepted, "repeated": repeated, "malformed": malformed, "other_spec": other_spec}


def test_every_form_of_a_batch_is_taken_and_taken_once(server: Server, collection: str) -> None:
    client, address = server.client(), f"{collection}/reports"
    table = PROTOCOL.report([["apple"]] * 50)
    forms = {
        "application/json": json.dumps(PROTOCOL.to_objects(table)).encode(),
        "application/x-ndjson": "\n".join(map(json.dumps, PROTOCOL.to_objects(table))).encode(),
        OCTETS: b"".join(PROTOCOL.to_bytes(table)),
        ARROW: as_stream(table),
    }
    for first, content in forms.items():
        checked = post(client, f"{collection}/check", content, first)
        assert checked.json() in (counts(accepted=50), counts(repeated=50))
    taken = {kind: post(client, address, content, kind).json() for kind, content in forms.items()}
    assert taken == {kind: counts(accepted=50) if i == 0 else counts(repeated=50) for i, kind in enumerate(forms)}
    assert client.get(collection).json()["reports"] == 50
    assert post(client, address, b"x", "text/plain").status_code == 415


def test_what_is_wrong_is_refused_and_counted(server: Server, collection: str) -> None:
    client, address = server.client(), f"{collection}/reports"
    good, fresh = objects(2)
    other = replace(PROTOCOL, epsilon=1.0)
    foreign = other.report([["apple"]])
    (foreign_object,) = other.to_objects(foreign)
    implausible = {**good, "id": uuid.uuid4().hex, "bucket": 1000}
    table = PROTOCOL.report([["apple"]] * 5)
    with noise.seeded_noise_for_tests_only(1):
        for_tests = PROTOCOL.report([["apple"]] * 4)
    packed = as_stream(table, compression="zstd")  # a small stream could unfold to any size
    renamed = table.rename_columns(["id", "seed", "pail"]).replace_schema_metadata(table.schema.metadata)
    in_json = (b"{", b"null", b"[" * 100_000, {**good, "id": "0" * 32}, {**good, "extra": 1}, {"id": good["id"]})
    wrong: list[tuple[Any, str, str]] = [
        *((content, JSON, "malformed") for content in (*in_json, implausible)),
        *((content, ARROW, "malformed") for content in (as_stream(for_tests), as_stream(renamed), packed, b"odd")),
        (foreign_object, JSON, "other_spec"),
        (as_stream(foreign), ARROW, "other_spec"),
    ]
    for content, kind, code in wrong:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        answer = post(client, address, body, kind)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, code), body[:100]
    assert client.post(address, json=good).json() == counts(accepted=1)
    mixed = [fresh, fresh, good, foreign_object, implausible, {"x": 1}]
    assert client.post(address, json=mixed).json() == counts(accepted=1, repeated=2, malformed=2, other_spec=1)
    compact = PROTOCOL.to_bytes(table)
    odd = [bytes([9]) + compact[0][1:], *other.to_bytes(foreign), compact[1][:-4] + bytes([255] * 4)]
    mixed_bytes = b"".join([*compact[2:], *odd]) + b"tail"
    assert post(client, address, mixed_bytes, OCTETS).json() == counts(accepted=3, malformed=3, other_spec=1)
    assert client.post(address, json=[]).json() == counts()
    shown = client.get(f"{collection}/counters").json()
    assert (shown["accepted"], shown["repeated"], shown["oversized"]) == (5, 2, 0)
    assert client.get(f"{collection}/estimate?key=apple").json()["reports"] == 5
    assert 'dpsketch_reports_total{outcome="other_spec"}' in client.get("/metrics").text


class Senders:
    """People who report until they cannot; they remember what was answered 202, and what was sent at all."""

    def __init__(self, url: str, address: str) -> None:
        self.stored: set[str] = set()
        self.sent: set[str] = set()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(url, address)))
        self._thread.start()

    async def _run(self, url: str, address: str) -> None:
        async with httpx.AsyncClient(base_url=url, timeout=20) as client:
            await asyncio.gather(*(self._person(client, address, number) for number in range(16)))

    async def _person(self, client: httpx.AsyncClient, address: str, number: int) -> None:
        """Send one report or twenty at a time; every fifth person sends each batch again."""
        with contextlib.suppress(httpx.HTTPError):
            while True:
                batch = objects(20 if number % 4 == 0 else 1)
                ids = {each["id"] for each in batch}
                self.sent |= ids
                if (await client.post(address, json=batch)).status_code == 202:
                    self.stored |= ids
                    if number % 5 == 0:
                        answer = await client.post(address, json=batch)
                        assert answer.status_code != 202 or answer.json() == counts(repeated=len(batch))

    def end(self) -> None:
        self._thread.join(60)


def ids_of(exported: bytes) -> set[str]:
    """The identifiers of the reports of an exported collection, each there once."""
    ids = np.asarray(files.decode(exported, allow_sensitive=False).arrays["ids"])
    listed = [row.astype("<u8").tobytes().hex() for row in ids]
    assert len(listed) == len(set(listed))
    return set(listed)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)])
def test_killed_under_load_nothing_that_was_answered_is_lost(
    kind: str, serve: Callable[..., Server], request: pytest.FixtureRequest
) -> None:
    server = serve(*OPEN, store="" if kind == "sqlite" else request.getfixturevalue("database"))
    address = f"/v1/collections/{new_collection(server.client(server.environment['token']))}"
    senders = Senders(server.url, f"{address}/reports")
    wait_for(lambda: len(senders.stored) >= 300)
    assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    senders.end()
    server.start()
    kept = ids_of(server.client().get(f"{address}/export").content)
    assert senders.stored <= kept, "a report that was answered 202 is gone"
    assert kept <= senders.sent
    assert server.client().get(address).json()["reports"] == len(kept)
    # What was stored before the kill is known to be a repetition after it.
    again = [{**objects(1)[0], "id": each} for each in sorted(senders.stored)[:100]]
    assert server.client().post(f"{address}/reports", json=again).json() == counts(repeated=100)
    assert server.stop() == 0
