"""Reports: every form they come in, what is refused and counted, and that nothing is lost or counted twice."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from dpsketch import local, noise
from serving import OPEN, PROTOCOL, Server, new_collection, new_token, objects

ARROW = "application/vnd.apache.arrow.stream"
OCTETS = "application/octet-stream"


def as_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)
    return bytes(sink.getvalue().to_pybytes())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("reports")
    running = Server(folder, ["--store", str(folder / "reports.db"), *OPEN])
    token = admin_of(running)
    running.start()
    try:
        running.environment["token"] = token
        yield running
    finally:
        assert running.stop() == 0


def admin_of(server: Server) -> str:
    return new_token(server.options[1], "admin")


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
    for kind in forms:
        fresh = PROTOCOL.report([["apple"]] * 20)
        one = {
            "application/json": json.dumps(PROTOCOL.to_objects(fresh)).encode(),
            "application/x-ndjson": "\n".join(map(json.dumps, PROTOCOL.to_objects(fresh))).encode(),
            OCTETS: b"".join(PROTOCOL.to_bytes(fresh)),
            ARROW: as_stream(fresh),
        }[kind]
        answer = post(client, address, one, kind)
        assert (answer.status_code, answer.json()) == (202, counts(accepted=20)), kind
    assert client.get(collection).json()["reports"] == 130
    assert post(client, address, b"x", "text/plain").status_code == 415


def test_what_is_wrong_is_refused_and_counted(server: Server, collection: str) -> None:
    client, address = server.client(), f"{collection}/reports"
    good = objects(1)[0]
    other = replace(PROTOCOL, epsilon=1.0)
    foreign = other.to_objects(other.report([["apple"]]))[0]
    implausible = {**good, "id": uuid.uuid4().hex, "bucket": 1000}
    wrong: list[tuple[Any, str]] = [
        (b"{", "malformed"),
        (b"null", "malformed"),
        (b"[" * 100_000, "malformed"),
        (json.dumps({**good, "id": "0" * 32}).encode(), "malformed"),
        (json.dumps({**good, "id": "zz"}).encode(), "malformed"),
        (json.dumps({**good, "extra": 1}).encode(), "malformed"),
        (json.dumps({key: value for key, value in good.items() if key != "seed"}).encode(), "malformed"),
        (json.dumps({**good, "seed": -1}).encode(), "malformed"),
        (json.dumps({**good, "dpsketch": 2}).encode(), "malformed"),
        (json.dumps(implausible).encode(), "malformed"),
        (json.dumps(foreign).encode(), "other_spec"),
    ]
    for content, code in wrong:
        answer = post(client, address, content, "application/json")
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, code), content[:100]
    assert client.post(address, json=good).json() == counts(accepted=1)
    assert client.post(address, json=good).json() == counts(repeated=1)
    fresh = objects(1)[0]
    mixed = [fresh, fresh, good, foreign, implausible, {"x": 1}]
    assert client.post(address, json=mixed).json() == counts(accepted=1, repeated=2, malformed=2, other_spec=1)
    assert client.post(address, json=[]).json() == counts()
    shown = client.get(f"{collection}/counters").json()
    assert shown == {"accepted": 2, "repeated": 3, "malformed": 12, "other_spec": 2, "oversized": 0}
    assert client.get(f"{collection}/estimate?key=apple").json()["reports"] == 2
    metrics = client.get("/metrics").text
    assert 'dpsketch_reports_total{outcome="other_spec"}' in metrics


def test_compact_and_arrow_batches_with_faults(server: Server, collection: str) -> None:
    client, address = server.client(), f"{collection}/reports"
    table = PROTOCOL.report([["apple"]] * 5)
    compact = PROTOCOL.to_bytes(table)
    other = replace(PROTOCOL, epsilon=1.0)
    foreign = other.report([["apple"]] * 3)
    odd = [bytes([9]) + compact[0][1:], *other.to_bytes(foreign), compact[1][:-4] + bytes([255] * 4)]
    mixed = b"".join([*compact[2:], *odd]) + b"tail"
    assert post(client, address, mixed, OCTETS).json() == counts(accepted=3, malformed=3, other_spec=3)
    assert post(client, address, as_stream(foreign), ARROW).json()["error"]["code"] == "other_spec"
    with noise.seeded_noise_for_tests_only(1):
        for_tests = PROTOCOL.report([["apple"]] * 4)
    assert post(client, address, as_stream(for_tests), ARROW).json()["error"]["code"] == "malformed"
    renamed = table.rename_columns(["id", "seed", "pail"]).replace_schema_metadata(table.schema.metadata)
    assert post(client, address, as_stream(renamed), ARROW).json()["error"]["code"] == "malformed"
    assert post(client, address, b"not arrow", ARROW).json()["error"]["code"] == "malformed"
    assert client.get(f"{collection}/counters").json()["accepted"] == 3


def test_forged_arrow_never_ends_the_process(server: Server, collection: str) -> None:
    """Bytes of a good stream are changed at random; the service answers each, and goes on."""
    draw = np.random.default_rng(3)
    stream = as_stream(PROTOCOL.report([["apple"]] * 10))
    client = server.client()
    for _ in range(150):
        forged = bytearray(stream[: draw.integers(1, len(stream))] if draw.random() < 0.2 else stream)
        for place in draw.integers(0, len(forged), draw.integers(1, 8)):
            forged[place] = draw.integers(256)
        answer = post(client, f"{collection}/check", bytes(forged), ARROW)
        assert answer.status_code in (200, 422), answer.text
    assert client.get("/health").status_code == 200


class Senders:
    """People who report until they are told to stop; they remember what was answered 202, and what was sent at all."""

    def __init__(self, url: str, address: str) -> None:
        self._url = url
        self._address = address
        self._stop = threading.Event()
        self.stored: set[str] = set()
        self.sent: set[str] = set()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    async def _run(self) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=20) as client:
            await asyncio.gather(*(self._person(client, number) for number in range(16)))

    async def _person(self, client: httpx.AsyncClient, number: int) -> None:
        while not self._stop.is_set():
            batch = objects(20 if number % 4 == 0 else 1)
            ids = {each["id"] for each in batch}
            self.sent |= ids
            try:
                answer = await client.post(self._address, json=batch if len(batch) > 1 else batch[0])
            except httpx.HTTPError:
                return
            if answer.status_code == 202:
                self.stored |= ids
                if number % 5 == 0:  # an impatient one sends it again
                    with_again = await self._again(client, batch)
                    if not with_again:
                        return

    async def _again(self, client: httpx.AsyncClient, batch: list[dict[str, Any]]) -> bool:
        try:
            answer = await client.post(self._address, json=batch)
        except httpx.HTTPError:
            return False
        assert answer.status_code != 202 or answer.json() == counts(repeated=len(batch))
        return True

    def wait_for(self, number: int) -> None:
        end = time.monotonic() + 60
        while len(self.stored) < number:
            assert time.monotonic() < end, "too few reports were stored"
            time.sleep(0.01)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(60)


def ids_of(exported: bytes, folder: Path) -> set[str]:
    path = folder / f"{uuid.uuid4().hex}.dps"
    path.write_bytes(exported)
    collector = local.load(path)
    ids = collector.to_document().arrays["ids"]
    assert isinstance(ids, np.ndarray)
    listed = [row.astype("<u8").tobytes().hex() for row in ids]
    assert len(listed) == len(set(listed)) == collector.users
    assert len(collector.tally.columns()["seed"]) == collector.users
    return set(listed)


def killed_and_restarted(folder: Path, store: str, *, kills: int) -> None:
    server = Server(folder, ["--store", store, *OPEN])
    token = admin_of(server)
    server.start()
    address = f"/v1/collections/{new_collection(server.client(token))}"
    stored: set[str] = set()
    sent: set[str] = set()
    try:
        for kill in range(kills):
            senders = Senders(server.url, f"{address}/reports")
            senders.wait_for(300 + 50 * kill)
            assert server.stop(signal.SIGKILL) == -signal.SIGKILL
            senders.end()
            stored |= senders.stored
            sent |= senders.sent
            server.start()
            kept = ids_of(server.client().get(f"{address}/export").content, folder)
            assert stored <= kept, "a report that was answered 202 is gone"
            assert kept <= sent
            assert server.client().get(address).json()["reports"] == len(kept)
        # What was stored before the kill is known to be a repetition after it.
        again = [{**objects(1)[0], "id": each} for each in sorted(stored)[:100]]
        assert server.client().post(f"{address}/reports", json=again).json() == counts(repeated=100)
    finally:
        assert server.stop() == 0


def test_killed_under_load_nothing_that_was_answered_is_lost_on_sqlite(tmp_path: Path) -> None:
    killed_and_restarted(tmp_path, str(tmp_path / "killed.db"), kills=2)


@pytest.fixture
def database(postgresql_url: str) -> str:
    """A database of the test's own."""
    import psycopg

    name = f"service_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgresql_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload]
    return postgresql_url.rpartition("/")[0] + f"/{name}"


def test_killed_under_load_nothing_that_was_answered_is_lost_on_postgresql(tmp_path: Path, database: str) -> None:
    killed_and_restarted(tmp_path, database, kills=1)


@pytest.mark.full
def test_killed_again_and_again_on_both(tmp_path: Path, database: str) -> None:
    killed_and_restarted(tmp_path, str(tmp_path / "killed.db"), kills=10)
    killed_and_restarted(tmp_path, database, kills=10)


def test_told_to_stop_under_load_every_request_is_answered_and_kept(tmp_path: Path) -> None:
    store = str(tmp_path / "stopped.db")
    server = Server(tmp_path, ["--store", store, *OPEN])
    token = admin_of(server)
    server.start()
    address = f"/v1/collections/{new_collection(server.client(token))}"
    try:
        server.client().post(f"{address}/reports", content=b"{", headers={"Content-Type": "application/json"})
        senders = Senders(server.url, f"{address}/reports")
        senders.wait_for(300)
        assert server.stop() == 0
        senders.end()
        with sqlite3.connect(store) as database:
            chunks = database.execute("SELECT reports, content FROM dpsketch_chunk").fetchall()
        database.close()
        assert len(chunks) == 1, "an orderly end joins what is small"
        assert chunks[0][0] * PROTOCOL.form.size == len(chunks[0][1])
        server.start()
        kept = ids_of(server.client().get(f"{address}/export").content, tmp_path)
        assert senders.stored <= kept <= senders.sent
        assert server.client().get(f"{address}/counters").json()["malformed"] == 1
        assert server.client().get(f"{address}/history").json()["points"]
    finally:
        assert server.stop() == 0


def test_a_lost_connection_to_postgresql_loses_and_doubles_nothing(tmp_path: Path, database: str) -> None:
    import psycopg

    server = Server(tmp_path, ["--store", database, *OPEN])
    token = admin_of(server)
    server.start()
    try:
        client = server.client()
        address = f"/v1/collections/{new_collection(server.client(token))}"
        batch = objects(50)
        assert client.post(f"{address}/reports", json=batch).json() == counts(accepted=50)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        more = objects(50)
        first = client.post(f"{address}/reports", json=more)
        assert (first.status_code, first.json()["error"]["code"]) == (503, "storage_failed")
        assert client.post(f"{address}/reports", json=more).json() == counts(accepted=50)
        assert client.post(f"{address}/reports", json=batch + more).json() == counts(repeated=100)
        assert client.get("/ready").status_code == 200
        assert ids_of(client.get(f"{address}/export").content, tmp_path) == {each["id"] for each in batch + more}
    finally:
        assert server.stop() == 0


@pytest.mark.parametrize(
    "protocol",
    [
        local.SubsetDirect(epsilon=2.0, max_items=1, domain=["apple", "pear"]),
        local.SampledBit(epsilon=1.0, width=64),
        local.OptimalLocalHashing(epsilon=2.0),
        local.CountMeanSketch(epsilon=2.0, rows=8, width=64),
        local.HadamardCountMean(epsilon=2.0, rows=8, width=64),
    ],
    ids=lambda protocol: protocol.name,
)
def test_other_protocols_are_collected_too(server: Server, protocol: local.LocalProtocol) -> None:
    single = protocol.name not in ("subset-direct", "sampled-bit")
    table = protocol.report(["apple"] * 200 if single else [["apple"]] * 200)
    address = "/v1/collections/" + new_collection(server.client(server.environment["token"]), spec=protocol.to_json())
    client = server.client()
    assert client.post(f"{address}/reports", json=protocol.to_objects(table)[:100]).json() == counts(accepted=100)
    rest = b"".join(protocol.to_bytes(table)[100:])
    assert post(client, f"{address}/reports", rest, OCTETS).json() == counts(accepted=100)
    assert post(client, f"{address}/reports", as_stream(table), ARROW).json() == counts(repeated=200)
    expected = protocol.collector().add(table).estimate(["apple", "pear"]).to_json()
    assert client.get(f"{address}/estimate?key=apple&key=pear").json()["estimates"] == expected
    assert len(client.get(f"{address}/history").json()["points"]) >= 1


ROOT = Path(__file__).parents[2]


def test_the_benchmark_counts_what_the_service_counts(server: Server, collection: str) -> None:
    """Its short form: the load of a second process, for correctness and not for time."""
    held = 0
    for form in ("check", "single", "arrow"):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.service", server.url, collection.rpartition("/")[2], form, "0.7"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        told = json.loads(done.stdout)
        assert told["accepted"] > 0
        assert told["refused"] == 0
        held += 0 if form == "check" else told["accepted"]
        assert server.client().get(collection).json()["reports"] == held, form
    assert server.client().get(f"{collection}/counters").json()["repeated"] == 0
