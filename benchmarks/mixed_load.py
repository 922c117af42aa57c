"""The service under mixed load: honest devices at half of its capacity, a slow-body, a forger and a scraper beside.

    python -m benchmarks.mixed_load               # five minutes
    python -m benchmarks.mixed_load 3600          # one hour
    python -m benchmarks.mixed_load 300 --store postgresql://user@host/empty_database
    python -m benchmarks.mixed_load 150 --held 3000000   # what the end of an hour is like

First the capacity is measured, for ten seconds: single reports from 128 connections, as fast as they are answered. Then
128 connections send one report each at a pace that comes to half of it, each device from an address of its own. Beside
them a slow-body holds sixteen connections open by one byte a second, a forger sends batches and single reports from one
address as fast as it is answered, and a scraper asks for what has to be computed. At the end the process is killed and
started again, and every report that was answered 202 must be there.

What is asked: honest reports' 99th percentile under 250 ms, nothing acknowledged lost, and memory flat within 10%. The
first minute is the warm-up: compiled loops are loaded, buffers of connections and of the database are taken, kept
answers gather. Memory is then set against its mean in the 30 seconds after it, by its mean in the last 30 seconds.
A collection remembers every report's identifier, so that none counts twice, and what its protocol keeps: some 40 to 55
bytes a report, which an hour at half of capacity makes hundreds of megabytes. The service says how many bytes that is.
Memory beside it must be flat in every run; all of it is told too. The command ends with 1 where something falls short.

With ``--held`` the collection holds that many reports before the clock starts, so that minutes show what a service is
like that has run for hours.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.service import PROTOCOL, load
from dpsketch import local

SECONDS = 300.0
CONNECTIONS = 128
SLOW = 16
BATCH = 50_000
SCRAPERS = 4
WARM_UP, SPAN = 60.0, 30.0  # seconds: before memory is looked at, and over which it is averaged
SLOWEST, GROWTH = 250.0, 0.10
OPTIONS = [
    "--public-read", "--public-collect", "--client-header", "X-Forwarded-For", "--collection-rate", "1000000",
    "--timeout", "10", "--log-level", "error",
]  # fmt: skip


@dataclass
class Tally:
    """What the load saw."""

    taken: set[bytes] = field(default_factory=set)
    times: list[float] = field(default_factory=list)
    honest: dict[str, int] = field(default_factory=dict)
    forger: dict[str, int] = field(default_factory=dict)
    scraper: dict[str, int] = field(default_factory=dict)
    slow_ended: int = 0
    memory: list[tuple[float, dict[str, int]]] = field(default_factory=list)


def run(seconds: float = SECONDS, store: str = "", held: int = 0) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="dpsketch-mixed-") as folder:
        store = store or str(Path(folder, "service.db"))
        with _serving(store, ["--address-rate", "1000000", "--address-quota", "1000000000"]) as (url, _):
            capacity = load(url, _start_collection(url, _token(store)), "single", 10.0)["rate"]
        tally = Tally()
        with _serving(store, []) as (url, process):
            token = _token(store)
            collection = _start_collection(url, token)
            _fill(url, collection, token, held)
            asyncio.run(_mixed(url, collection, capacity / 2, seconds, tally))
            held = _get(f"{url}/v1/collections/{collection}")["reports"]
            process.send_signal(signal.SIGKILL)
            process.wait(60)
        with _serving(store, []) as (url, _):
            exported = Path(folder, "exported.dps")
            with urllib.request.urlopen(f"{url}/v1/collections/{collection}/export") as answer:
                exported.write_bytes(answer.read())
        ids = np.asarray(local.load(exported).to_document().arrays["ids"])
        kept = {row.tobytes() for row in ids.astype("<u8")}
        whole, beside = (_means(tally.memory, seconds, of) for of in (_all, _beside_reports))
        found = {
            "seconds": seconds,
            "capacity_per_second": round(capacity),
            "honest": tally.honest,
            "honest_per_second": round(len(tally.taken) / seconds),
            **{f"p{level}_ms": round(1000 * float(np.percentile(tally.times, level)), 1) for level in (50, 99)},
            "worst_ms": round(1000 * max(tally.times), 1),
            "forger": tally.forger,
            "scraper": tally.scraper,
            "slow_connections_ended": tally.slow_ended,
            "reports_held": held,
            "acknowledged_and_lost": len(tally.taken - kept),
            "memory_mb": [round(size / 2**20, 1) for size in whole],
            "memory_growth": round(whole[1] / whole[0] - 1, 3),
            "memory_beside_reports_mb": [round(size / 2**20, 1) for size in beside],
            "memory_growth_beside_reports": round(beside[1] / beside[0] - 1, 3),
        }
        return {**found, "shortfalls": _shortfalls(found)}


def _all(sizes: dict[str, int]) -> int:
    return sizes["memory"]


def _beside_reports(sizes: dict[str, int]) -> int:
    return sizes["memory"] - sizes["report_memory"]


def _means(
    memory: list[tuple[float, dict[str, int]]], seconds: float, of: Callable[[dict[str, int]], int]
) -> tuple[float, float]:
    """Return the memory after the warm-up and at the end; of a run that is too short for one, from its middle on."""
    warm = WARM_UP if seconds > WARM_UP + 2 * SPAN else seconds / 2
    first = [of(sizes) for at, sizes in memory if warm <= at < warm + SPAN]
    last = [of(sizes) for at, sizes in memory if at >= seconds - SPAN]
    return float(np.mean(first)), float(np.mean(last))


def _shortfalls(found: dict[str, Any]) -> list[str]:
    asked = {
        f"p99 under {SLOWEST:g} ms": found["p99_ms"] < SLOWEST,
        "nothing acknowledged lost": found["acknowledged_and_lost"] == 0,
        f"memory flat within {GROWTH:.0%}": abs(found["memory_growth_beside_reports"]) <= GROWTH,
    }
    return [words for words, holds in asked.items() if not holds]


@contextlib.contextmanager
def _serving(store: str, more: list[str]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [sys.executable, "-m", "dpsketch", "serve", "--store", store, "--port", "0", *OPTIONS, *more]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


def _token(store: str) -> str:
    make = [sys.executable, "-m", "dpsketch", "serve", "--store", store, "token", "create"]
    made = subprocess.run([*make, "--scope", "admin", "--name", "bench"], capture_output=True, text=True, check=True)
    time.sleep(2.5)  # for the service to take note
    return made.stdout.strip()


def _start_collection(url: str, token: str) -> str:
    body = json.dumps({"name": "mixed", "spec": PROTOCOL.to_json(), "candidates": ["apple", "pear"]}).encode()
    return str(json.loads(_post(f"{url}/v1/collections", body, token, "application/json"))["id"])


def _fill(url: str, collection: str, token: str, number: int) -> None:
    columns, _ = PROTOCOL.form.from_table(PROTOCOL.report([["apple"]] * BATCH))
    assert columns is not None
    for first in range(0, number, BATCH):
        size = min(BATCH, number - first)
        fresh = {name: values[:size] for name, values in columns.items()}
        fresh["id"] = np.frombuffer(os.urandom(16 * size), "<u8").reshape(-1, 2)
        body = PROTOCOL.form.to_bytes(fresh)
        _post(f"{url}/v1/collections/{collection}/reports", body, token, "application/octet-stream")


def _post(url: str, body: bytes, token: str, kind: str) -> bytes:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
        return bytes(answer.read())


def _get(url: str) -> Any:
    with urllib.request.urlopen(url) as answer:
        return json.load(answer)


# The load.


class _Caller:
    """One connection that asks and waits for the answer; it connects again where it was ended."""

    def __init__(self, url: str) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._address = host, int(port)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"", kind: str = "", address: str = "") -> int:
        """Return the status of the answer; 0 where there was none."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection(*self._address)
            reader, writer = self._streams
            lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
            lines += [f"Content-Type: {kind}"] * bool(kind) + [f"X-Forwarded-For: {address}"] * bool(address)
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            left = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while left:  # an export has tens of megabytes, and to keep them would slow down who measures
                part = await reader.read(min(left, 1 << 16))
                if not part:
                    raise asyncio.IncompleteReadError(b"", left)
                left -= len(part)
            if b"connection: close" in head:
                self.close()
            return int(head[9:12])
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            return 0

    def close(self) -> None:
        """End the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


def _count(tally: dict[str, int], status: int) -> None:
    tally[str(status)] = tally.get(str(status), 0) + 1


async def _honest(url: str, path: str, pause: float, end: float, number: int, tally: Tally) -> None:
    caller, draw = _Caller(url), random.Random(number)
    reports = PROTOCOL.to_bytes(PROTOCOL.report([["apple"]] * 64))
    at = time.perf_counter() + draw.random() * pause
    while at < end:
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        identifier = os.urandom(16)
        body = reports[draw.randrange(64)]
        body = body[:9] + identifier + body[25:]
        address = f"10.{draw.randrange(256)}.{draw.randrange(256)}.{draw.randrange(256)}"
        start = time.perf_counter()
        status = await caller.ask("POST", path, body, "application/octet-stream", address)
        tally.times.append(time.perf_counter() - start)
        _count(tally.honest, status)
        if status == 202:
            tally.taken.add(identifier)
        at += pause
    caller.close()


async def _slow(url: str, path: str, end: float, tally: Tally) -> None:
    host, port = url.removeprefix("http://").split(":")
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 400\r\n\r\n".encode()
    while time.perf_counter() < end:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(head)
            with contextlib.suppress(OSError):
                while time.perf_counter() < end and not writer.is_closing():
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(1)
            tally.slow_ended += time.perf_counter() < end
            writer.close()


async def _forger(url: str, path: str, end: float, tally: Tally) -> None:
    caller = _Caller(url)
    batch = b"".join(PROTOCOL.to_bytes(PROTOCOL.report([["pear"]] * 20_000)))
    one = len(batch) // 20_000
    while time.perf_counter() < end:
        for body in (batch, *(batch[:9] + os.urandom(16) + batch[25:one] for _ in range(20))):
            _count(tally.forger, await caller.ask("POST", path, body, "application/octet-stream", "192.0.2.66"))
            await asyncio.sleep(0.02)
    caller.close()


async def _scraper(url: str, collection: str, end: float, number: int, tally: Tally) -> None:
    caller, draw = _Caller(url), random.Random(number)
    while time.perf_counter() < end:
        asked = draw.choice(("top", "estimate", "history", "export", "estimate"))
        query = "" if asked in ("history", "export") else f"?confidence={draw.uniform(0.5, 0.99):.6f}&key=apple"
        path = f"/v1/collections/{collection}/{asked}{query}"
        _count(tally.scraper, await caller.ask("GET", path, address=f"192.0.2.{number}"))
        await asyncio.sleep(0.05)
    caller.close()


async def _watch(url: str, begin: float, end: float, tally: Tally) -> None:
    while time.perf_counter() < end:
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{url}/metrics").read().decode())
        found = {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"
        }
        sizes = {name: int(found[f"dpsketch_{name}_bytes"]) for name in ("memory", "report_memory", "answer_memory")}
        tally.memory.append((time.perf_counter() - begin, sizes))
        await asyncio.sleep(2)


async def _mixed(url: str, collection: str, rate: float, seconds: float, tally: Tally) -> None:
    begin = time.perf_counter()
    end = begin + seconds
    path = f"/v1/collections/{collection}/reports"
    await asyncio.gather(
        *(_honest(url, path, CONNECTIONS / rate, end, number, tally) for number in range(CONNECTIONS)),
        *(_slow(url, path, end, tally) for _ in range(SLOW)),
        _forger(url, path, end, tally),
        *(_scraper(url, collection, end, number, tally) for number in range(SCRAPERS)),
        _watch(url, begin, end, tally),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seconds", nargs="?", type=float, default=SECONDS)
    parser.add_argument("--store", default="", help="a PostgreSQL address; an SQLite file of its own if not given")
    parser.add_argument("--held", type=int, default=0, help="reports in the collection before the clock starts")
    result = run(**vars(parser.parse_args()))
    print(json.dumps(result, indent=2))
    sys.exit(bool(result["shortfalls"]))
