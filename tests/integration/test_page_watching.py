"""Whoever watches a collection on the page: one request each, forged reports doubted aloud, names shown as they are."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from browsing import DEMO, Visit, collection, releases, service, visit
from dpsketch import local

CHROMIUM = shutil.which("chromium")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="the page in a browser: chromium is not installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM)
        yield running
        running.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with service(tmp_path_factory.mktemp("demo") / "log", *DEMO) as address:
        yield address


@pytest.fixture
def tab(browser: Browser, demo: str) -> Iterator[Visit]:
    with visit(browser, demo) as opened:
        yield opened


def test_many_watch_one_collection_by_one_request_each(tab: Visit, demo: str) -> None:
    one = collection(demo)
    tab.open(f"/collections/{one['id']}")
    tab.page.wait_for_timeout(3500)
    asked = [request.url.rpartition("/")[2] for request in tab.requests if "/v1/collections/" in request.url]
    assert asked == [one["id"], "stream"]


def test_forged_reports_are_doubted_aloud(browser: Browser, demo: str) -> None:
    address = demo
    with visit(browser, address) as seen:
        one = collection(address)
        protocol = local.SubsetHashing(epsilon=2.0, max_items=1, key_type="text")
        seeds = np.arange(20_000, dtype=np.uint32) % protocol.seeds
        chosen = protocol.decide(protocol.read([["pear"]] * 20_000), seeds, np.zeros((20_000, 3), np.uint64))
        ids = np.random.default_rng(5).integers(1, 2**63, (20_000, 2), np.uint64)
        body = protocol.form.to_bytes({"id": ids, "seed": seeds.astype(np.uint16), "bucket": chosen})
        octets = {"Content-Type": "application/octet-stream"}
        told = httpx.post(f"{address}/v1/collections/{one['id']}/reports", content=body, headers=octets)
        assert told.json()["accepted"] == 20_000
        seen.open(f"/collections/{one['id']}")
        expect(seen.card("Share of people").get_by_role("alert")).to_contain_text("reports were probably forged")
        seen.keep_picture("forged")


def test_signs_that_turn_writing_are_shown_by_name(tab: Visit, demo: str) -> None:
    tab.open(f"/releases/{releases(demo)['counts']}")
    tab.page.get_by_label("Key, exactly").fill("/good\u202elive")
    tab.page.get_by_role("button", name="Look up").click()
    expect(tab.page.locator(".answer").first).to_contain_text("/good[U+202E]live: about")
