"""Exports beside reports: who exports or estimates copies no report and stops none, and a large export is made once."""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

import dpsketch as dps
from dpsketch import files, local
from dpsketch.local import hashed
from dpsketch.local.tallies import Growing
from dpsketch.server import answers, collection_routes
from dpsketch.server.app import create_app
from dpsketch.server.releases import Releases
from dpsketch.server.service import Service
from dpsketch.server.settings import Settings

PROTOCOL = local.SubsetHashing(epsilon=2.0, max_items=1)
RNG = np.random.default_rng(7)


def compact(number: int) -> bytes:
    return b"".join(PROTOCOL.to_bytes(PROTOCOL.report([["a"]] * number)))


def users_of(exported: bytes) -> int:
    return local.Collector.from_document(files.decode(exported, allow_sensitive=False)).users


class Encoding:
    """The encoding of an export, which waits to be let go on, and counts how often it was begun."""

    def __init__(self) -> None:
        self.begun = 0
        self.reached, self.go_on = threading.Event(), threading.Event()

    def __call__(self, document: files.Document) -> bytes:
        self.begun += 1
        self.reached.set()
        assert self.go_on.wait(20)
        return files.encode(document)


def test_reports_are_stored_while_an_export_is_made_and_strangers_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The large export stops in its middle until reports have come, been stored and been acknowledged."""
    encoding = Encoding()
    app = create_app(Settings(store=str(tmp_path / "s.db"), public=frozenset({"read"})))

    async def work() -> None:
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            assert len(gc.get_objects()) < gc.get_freeze_count() / 10, "what was there at the start is left out"
            service: Service = app.state.service
            small = service.aggregates.create("small", PROTOCOL.to_json(), None)
            for number in (1, 2):
                await service.store(small, compact(10))
                exported = await client.get(f"/v1/collections/{small.row.id}/export")
                assert users_of(exported.content) == 10 * number, "a small export is never old"

            monkeypatch.setattr(collection_routes, "files", type("files", (), {"encode": encoding}))
            for module, name in ((answers, "LARGE"), (collection_routes, "LARGE_ANSWER")):
                monkeypatch.setattr(module, name, 1000)
            aggregate = service.aggregates.create("c", PROTOCOL.to_json(), ["a"])
            address = f"/v1/collections/{aggregate.row.id}/export"
            assert (await service.store(aggregate, compact(500))).accepted == 500
            first = asyncio.create_task(client.get(address))
            assert await asyncio.to_thread(encoding.reached.wait, 20)

            assert (await service.store(aggregate, compact(700))).accepted == 700
            assert aggregate.reports == 1200
            second = asyncio.create_task(client.get(address))
            await asyncio.sleep(0)
            encoding.go_on.set()
            bodies = [(await asked).content for asked in (first, second)]
            bodies.append((await client.get(address)).content)
            assert encoding.begun == 1
            assert len(set(bodies)) == 1
            assert users_of(bodies[0]) == 500, "what was there when it was begun, whole"

            await service.close(aggregate)
            assert users_of((await client.get(address)).content) == 1200, "once it is closed, all of it"

    before = gc.get_freeze_count()
    asyncio.run(work())
    assert gc.get_freeze_count() <= before, "and taken up again at the end"


def test_copies_of_a_growing_array_go_their_own_ways() -> None:
    first = Growing(np.empty(0, np.int64))
    first.add(np.arange(5))
    second, view = first.copy(), first.rows()
    first.add(np.array([50, 60]))
    second.add(np.array([70]))
    first.add(first.rows())
    assert view.tolist() == [0, 1, 2, 3, 4]
    assert second.rows().tolist() == [0, 1, 2, 3, 4, 70]
    assert first.rows().tolist() == [0, 1, 2, 3, 4, 50, 60] * 2
    assert first.memory == 14 * 8


@pytest.mark.parametrize("few", [1, 8, 1 << 18])
def test_cells_are_how_often_each_bucket_was_named(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorted where pairs are more than the reports; counted, whole or a part at a time, where they are not."""
    monkeypatch.setattr(hashed, "_FEW", few)
    protocol: Any
    for protocol in (PROTOCOL, local.OptimalLocalHashing(1.0, width=4, seeds=8)):
        seeds, buckets = RNG.integers(0, protocol.seeds, 300), RNG.integers(0, protocol.buckets, 300)
        cells = protocol.cells({"seed": seeds.astype(np.uint16), "bucket": buckets.astype(np.uint32)})
        expected = Counter((seeds * protocol.buckets + buckets).tolist())
        assert list(zip(cells.numbers.tolist(), cells.sizes.tolist(), strict=True)) == sorted(expected.items())


async def downloaded(app: Starlette, path: str, began: Callable[[], Awaitable[None]]) -> list[bytes]:
    """Ask the application itself, take the first piece, wait, and take the others."""
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "app": app,
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "server": ("localhost", 80),
        "scheme": "http", "root_path": "", "http_version": "1.1",
    }  # fmt: skip
    got: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(3600)
        raise AssertionError

    async def send(message: Any) -> None:
        got.append(message)
        if len(got) == 2:
            await began()

    await app(scope, receive, send)
    parts = got[1:]
    assert [part.get("more_body", False) for part in parts] == [True] * (len(parts) - 1) + [False]
    return [part["body"] for part in parts]


def test_slow_downloads_share_one_file_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reader takes the first piece and then nothing; all of them together hold less than the file twice.

    An answer in memory comes in pieces as well: it is not copied whole for each connection that takes it slowly.
    """
    sketch = dps.CountSketch(rows=5, width=1 << 17, unit=dps.per_record())
    sketch.release(epsilon=0.01, delta=1e-6).save(tmp_path / "large.dps")
    content = (tmp_path / "large.dps").read_bytes()
    assert len(content) > 1 << 20
    read: list[str] = []
    of_releases = Releases.content
    monkeypatch.setattr(
        Releases, "content", lambda self, served: (read.append(served.id), of_releases(self, served))[1]
    )
    app = create_app(Settings(str(tmp_path / "s.db"), mounts=(tmp_path,), public=frozenset({"read"})))
    app.router.routes.insert(0, Route("/memory", lambda _: Response(content)))

    async def work() -> None:
        async with app.router.lifespan_context(app):
            [shown] = app.state.service.releases.views()
            path, go_on, waiting = f"/v1/releases/{shown['id']}/file", asyncio.Event(), list[int]()

            async def began() -> None:
                waiting.append(1)
                await go_on.wait()

            tracemalloc.start()
            tasks = [asyncio.create_task(downloaded(app, path, began)) for _ in range(8)]
            while len(waiting) < len(tasks):
                await asyncio.sleep(0.01)
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert held < 2 * len(content) + len(tasks) * (1 << 19)
            go_on.set()
            for parts in [*await asyncio.gather(*tasks), await downloaded(app, "/memory", began)]:
                assert b"".join(parts) == content
                assert max(map(len, parts)) <= 1 << 18
            assert len(read) == 1

    asyncio.run(work())
