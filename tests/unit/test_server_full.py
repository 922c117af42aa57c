"""A collection holds at most its ``max_reports``, however many requests come at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from dpsketch.server.aggregates import Aggregate
from dpsketch.server.reports import Collecting, Outcome
from dpsketch.server.service import running
from dpsketch.server.settings import Limits, Settings
from dpsketch.server.storage import CollectionPlan, Mark
from serving import PROTOCOL, inside, new_token, objects


def test_requests_that_come_together_do_not_fill_a_collection_beyond_its_limit(tmp_path: Path) -> None:
    """Of two collections one has the service's own limit, and one a lower one."""
    store = str(tmp_path / "x.db")
    headers = {"Authorization": f"Bearer {new_token(store, 'admin')}"}

    async def filled(client: httpx.AsyncClient, most: int, **more: int) -> None:
        asked = {"name": "x", "spec": PROTOCOL.to_json(), **more}
        made = (await client.post("/v1/collections", json=asked, headers=headers)).json()
        address = f"/v1/collections/{made['id']}"
        sent = (client.post(f"{address}/reports", json=each, headers=headers) for each in objects(40))
        told = await asyncio.gather(*sent)
        assert Counter(each.status_code for each in told) == {202: most, 409: 40 - most}
        assert {each.json()["error"]["code"] for each in told if each.status_code == 409} == {"full"}
        assert (await client.get(f"{address}/counters", headers=headers)).json()["accepted"] == most

    async def work() -> None:
        async with inside(Settings(store, limits=Limits(max_reports=20))) as client:
            await filled(client, 20)
            await filled(client, 10, max_reports=10)

    asyncio.run(work())


async def together(collecting: Collecting, aggregate: Aggregate, sent: list[bytes], **more: Any) -> list[Outcome]:
    """Submit requests that one commit takes together."""
    return await asyncio.gather(*(collecting.submit(aggregate, each, **more) for each in sent))


def test_what_finds_no_room_is_not_stored_and_says_so(tmp_path: Path) -> None:
    """A report that was refused with its batch is new where it comes again, in the same commit or later.

    A ticket whose report found no room is not used up.
    """

    async def work() -> None:
        async with running(Settings(str(tmp_path / "x.db"))) as service:
            aggregate = service.aggregates.create("x", PROTOCOL.to_json(), None, CollectionPlan(max_reports=3))
            a, b, c, d, e = PROTOCOL.to_bytes(PROTOCOL.report([["a"]] * 5))
            told = await together(service.collecting, aggregate, [a + b, c + d, d, a, e, e])
            # c and d together are too many; d alone is not, and then nothing is left for e.
            assert told == [
                Outcome(2, 0, 0), Outcome(0, 0, 0, full=2), Outcome(1, 0, 0), Outcome(0, 1, 0),
                Outcome(0, 0, 0, full=1), Outcome(0, 0, 0, full=1),
            ]  # fmt: skip
            assert aggregate.reports == 3
            # Those that are stored can be sent again; the others are still refused.
            told = await together(service.collecting, aggregate, [a + b + d, a + c, e])
            assert told == [Outcome(0, 3, 0), Outcome(0, 1, 0, full=1), Outcome(0, 0, 0, full=1)]
            mark = Mark(aggregate.row.id, 1, "m")
            assert await together(service.collecting, aggregate, [e], mark=mark) == [Outcome(0, 0, 0, full=1)]
            assert service.storage.used_marks([mark]) == set()
            assert aggregate.reports == 3

    asyncio.run(work())
