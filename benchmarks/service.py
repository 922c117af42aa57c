"""The service under load from a second process: one report a request, batches, and an estimate over a million reports.

One report a request is set against the same request to ``/check``, which validates the body and stores nothing, both at
128 connections. Batches are set against single reports. The time of an estimate over a million reports is set against
the second it may take. The same on PostgreSQL, where one is installed; its writes are synchronous.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpsketch import local

SECONDS = 20.0
CONNECTIONS = 128
BATCH_CONNECTIONS = 8
BATCH = 1000
MILLION = 1_000_000
UNLIMITED = [
    "--public-read", "--public-collect", "--public-batch", "100000", "--address-rate", "1000000", "--address-quota",
    "1000000000", "--collection-rate", "1000000", "--read-rate", "1000000", "--log-level", "warning",
]  # fmt: skip
PROTOCOL = local.SubsetHashing(epsilon=2.0, max_items=1, key_type="text")


def run(seconds: float = SECONDS) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="dpsketch-bench-") as folder:
        rows = list(_measure("SQLite", str(Path(folder, "service.db")), seconds))
    with _postgresql() as url:
        if url is None:
            print("PostgreSQL is not installed: its rows are left out.", file=sys.stderr)
        else:
            rows += _measure("PostgreSQL", url, seconds)
    return rows


def _measure(name: str, store: str, seconds: float) -> Iterator[dict[str, Any]]:
    with serving(store) as (url, collection):
        # Turn and turn about, so that a change in the machine's load meets both.
        turns = [
            (load(url, collection, "check", seconds / 2), load(url, collection, "single", seconds / 2)) for _ in "ab"
        ]
        checked, single = (sum(turn[i]["rate"] for turn in turns) / 2 for i in (0, 1))
        yield _row(f"single reports against validating alone, {name}", single, checked, 0.5)
        while (held := _get(f"{url}/v1/collections/{collection}")["reports"]) < MILLION:
            load(url, collection, "arrow", 1.0)
        times = []
        for _ in range(5):
            start = time.perf_counter()
            _get(f"{url}/v1/collections/{collection}/estimate?key=apple&key=pear")
            times.append(time.perf_counter() - start)
        row = _row(f"an estimate over {held / 1e6:.1f} M reports against a second, {name}", max(times), 1.0, 1)
        yield {**row, "ratio": 1.0 / max(times), "unit": "s"}
        for form in ("json", "compact", "arrow"):
            batched = load(url, collection, form, seconds / 3)["rate"]
            yield _row(f"batches of {BATCH} as {form} against single reports, {name}", batched, single, 20)


def _row(name: str, ours: float, theirs: float, reach: float) -> dict[str, Any]:
    ratio = ours / theirs
    return {"name": name, "ours": ours, "theirs": theirs, "ratio": ratio, "unit": "reports/s", "reach": reach}


@contextmanager
def serving(store: str) -> Iterator[tuple[str, str]]:
    """Start the service on a store; yield its address and the id of a collection."""
    command = [sys.executable, "-m", "dpsketch", "serve", "--store", store]
    token = [*command, "token", "create", "--scope", "admin", "--name", "bench"]
    made = subprocess.run(token, capture_output=True, text=True, check=True)
    process = subprocess.Popen([*command, "--port", "0", *UNLIMITED], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        body = json.dumps({"name": "bench", "spec": PROTOCOL.to_json(), "candidates": ["apple", "pear"]}).encode()
        headers = {"Authorization": f"Bearer {made.stdout.strip()}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/v1/collections", body, headers)
        with urllib.request.urlopen(request) as answer:
            yield url, json.load(answer)["id"]
    finally:
        process.terminate()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


def load(url: str, collection: str, form: str, seconds: float) -> dict[str, float]:
    """Put load on a service from a process of its own; return reports a second, and what was accepted and refused."""
    command = [sys.executable, "-m", "benchmarks.service", url, collection, form, str(seconds)]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _get(url: str) -> Any:
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


# The process that makes the load.


class _Connection(asyncio.Protocol):
    """One connection that sends the next request when the last one is answered."""

    def __init__(self, body: Callable[[], bytes], head: str, tally: dict[str, int], end: float) -> None:
        self._body = body
        self._head = head
        self._tally = tally
        self._end = end
        self._buffer = b""
        self._transport: Any = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        if time.perf_counter() >= self._end:
            self._transport.close()
            return
        body = self._body()
        self._transport.write(f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, blank, body = self._buffer.partition(b"\r\n\r\n")
        if not blank:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) < length:
            return
        self._buffer = b""
        if head[9:12] in (b"200", b"202"):
            self._tally["accepted"] += json.loads(body)["accepted"]
        else:
            self._tally["refused"] += 1
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


def _bodies(form: str) -> Callable[[], bytes]:
    """Return what makes the next body: always the same reports, under fresh identifiers."""
    template = json.dumps(PROTOCOL.to_objects(PROTOCOL.report([["apple"]]))[0], separators=(",", ":"))
    old = json.loads(template)["id"]
    before, _, after = template.partition(old)
    start, end = before.encode(), after.encode()
    if form in ("check", "single"):
        return lambda: start + os.urandom(16).hex().encode() + end
    if form == "json":

        def batch() -> bytes:
            ids = os.urandom(16 * BATCH).hex()
            each = (start + ids[at : at + 32].encode() + end for at in range(0, 32 * BATCH, 32))
            return b"[" + b",".join(each) + b"]"

        return batch
    import numpy as np
    import pyarrow as pa

    table = PROTOCOL.report([["apple"]] * BATCH)
    columns, _ = PROTOCOL.form.from_table(table)
    assert columns is not None

    def fresh() -> dict[str, Any]:
        return {**columns, "id": np.frombuffer(os.urandom(16 * BATCH), "<u8").reshape(-1, 2)}

    if form == "compact":
        return lambda: PROTOCOL.form.to_bytes(fresh())

    def stream() -> bytes:
        reports = PROTOCOL.form.to_table(fresh(), for_tests=False)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, reports.schema) as writer:
            writer.write_table(reports)
        return bytes(sink.getvalue().to_pybytes())

    return stream


async def _load(url: str, collection: str, form: str, seconds: float) -> dict[str, float]:
    kinds = {"compact": "application/octet-stream", "arrow": "application/vnd.apache.arrow.stream"}
    path = f"/v1/collections/{collection}/{'check' if form == 'check' else 'reports'}"
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kinds.get(form, 'application/json')}\r\n"
    host, port = url.removeprefix("http://").split(":")
    loop = asyncio.get_running_loop()
    tally = {"accepted": 0, "refused": 0}
    body = _bodies(form)
    start = time.perf_counter()
    protocols = []
    for _ in range(CONNECTIONS if form in ("check", "single") else BATCH_CONNECTIONS):
        _, protocol = await loop.create_connection(
            lambda: _Connection(body, head, tally, start + seconds), host, int(port)
        )
        protocols.append(protocol)
    await asyncio.gather(*(protocol.done for protocol in protocols))
    return {**tally, "rate": tally["accepted"] / (time.perf_counter() - start)}


@contextmanager
def _postgresql() -> Iterator[str | None]:
    """Start a PostgreSQL of our own on this machine, with its writes synchronous; None where there is none."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not folders:
        yield None
        return
    binaries = folders[-1].parent
    folder = Path(tempfile.mkdtemp(prefix="dpg-", dir="/tmp"))  # short: the socket's name may hold about 100 bytes
    prefix: list[str] = []
    if os.geteuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        prefix = ["runuser", "-u", "postgres", "--"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def run_binary(*command: str) -> None:
        quiet = subprocess.DEVNULL
        subprocess.run([*prefix, *command], cwd=folder, check=True, stdin=quiet, stdout=quiet, stderr=quiet)

    data = str(folder / "data")
    try:
        run_binary(str(binaries / "initdb"), "-D", data, "-A", "trust", "-U", "dpsketch", "-E", "UTF8")
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        run_binary(str(binaries / "pg_ctl"), "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://dpsketch@127.0.0.1:{port}/postgres"
        finally:
            run_binary(str(binaries / "pg_ctl"), "-D", data, "-w", "-m", "fast", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) > 4:
        try:
            import uvloop as fast
        except ModuleNotFoundError:
            fast = asyncio
        print(json.dumps(fast.run(_load(*sys.argv[1:4], float(sys.argv[4])))))
    else:
        for row in run(*map(float, sys.argv[1:])):
            print(row)
