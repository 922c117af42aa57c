"""The list of releases at the page, their versions and files, what programs are told, and taking part with a ticket."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect, sync_playwright

import dpsketch as dps
from browsing import Visit, visit
from dpsketch import files
from dpsketch.local import tickets
from serving import OPEN, PROTOCOL, Server, new_token

CHROMIUM = shutil.which("chromium")
OCTETS = {"Content-Type": "application/octet-stream"}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="the page in a browser: chromium is not installed")


def release(word: str) -> bytes:
    histogram = dps.Histogram(unit=dps.per_record())
    histogram.update([word] * 500 + ["both"] * 300)
    return files.encode(histogram.release(epsilon=2.0, delta=0, keys=[word, "both"]).to_document())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Three releases, two of them of one name, and a collection that asks for tickets."""
    folder = tmp_path_factory.mktemp("releases")
    store = str(folder / "releases.db")
    token = new_token(store, "admin")
    running = Server(folder, ["--store", store, *OPEN], {"token": token}).start()
    admin = running.client(token)
    for name, word in (("visits", "first"), ("visits", "second"), ("purchases", "third")):
        answer = admin.post(f"/v1/releases?name={name}", content=release(word), headers=OCTETS)
        assert answer.status_code == 201, answer.text
        time.sleep(0.01)
    try:
        yield running
    finally:
        assert running.stop() == 0


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM)
        yield running
        running.close()


@pytest.fixture
def tab(browser: Browser, server: Server) -> Iterator[Visit]:
    with visit(browser, server.url) as opened:
        yield opened


def listed(server: Server, question: str = "") -> list[dict[str, object]]:
    found: list[dict[str, object]] = server.client().get(f"/v1/releases{question}").json()["releases"]
    return found


def test_releases_are_searched_by_words_names_and_kinds(server: Server) -> None:
    assert [(one["name"], one["version"], one["versions"]) for one in listed(server)] == [
        ("purchases", 1, 1), ("visits", 2, 2), ("visits", 1, 2),
    ]  # fmt: skip
    assert {str(one["added"])[:4] for one in listed(server)} == {time.strftime("%Y", time.gmtime())}
    assert len(listed(server, "?search=VISITS+histogram")) == 2
    assert len(listed(server, "?search=visits+nothing")) == 0
    assert [one["version"] for one in listed(server, "?name=visits")] == [2, 1]
    assert len(listed(server, "?kind=histogram")) == 3
    assert listed(server, "?kind=counts") == []
    one = server.client().get(f"/v1/releases/{listed(server, '?name=visits')[0]['id']}").json()
    assert (one["version"], one["versions"]) == (2, 2)


def test_estimates_come_as_csv_too(server: Server) -> None:
    identifier = listed(server, "?name=purchases")[0]["id"]
    address = f"/v1/releases/{identifier}"
    asked = [
        server.client().get(f"{address}/estimate?key=third&key=both&format=csv"),
        server.client().post(f"{address}/estimate", json={"keys": ["third", "both"], "format": "csv"}),
        server.client().get(f"{address}/top?n=2&format=csv"),
    ]
    assert {answer.headers["content-type"] for answer in asked} == {"text/csv; charset=utf-8"}
    told = server.client().get(f"{address}/estimate?key=third&key=both").json()["estimates"]
    lines = [f"{one['key']},{one['value']},{one['low']},{one['high']}" for one in told]
    assert asked[0].text == asked[1].text == "\n".join(["key,value,low,high", *lines, ""])
    assert asked[2].text.splitlines()[1].startswith("third,")


def test_the_list_is_searched_and_versions_lead_to_each_other(tab: Visit, server: Server) -> None:
    page = tab.page
    tab.open("/releases")
    tiles = page.locator(".tiles .tile")
    expect(tiles).to_have_count(2)
    expect(tiles.last).to_contain_text("2 versions")
    page.get_by_label("Search").fill("purch hist")
    expect(tiles).to_have_count(1)
    page.get_by_label("Search").fill("nothing at all")
    expect(page.get_by_role("status").first).to_contain_text("No release has all these words")
    newest, oldest = (str(one["id"]) for one in listed(server, "?name=visits"))
    tab.open("/releases/newest/visits")
    expect(page.get_by_text(f"Its id is {newest}")).to_be_visible()
    page.get_by_role("link", name="Version 1").click()
    expect(page.get_by_text(f"Its id is {oldest}")).to_be_visible()
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save as .dps").click()
    assert Path(saved.value.path()).read_bytes() == server.client().get(f"/v1/releases/{oldest}/file").content
    assert saved.value.suggested_filename == "visits.dps"
    with page.expect_download() as table:
        page.get_by_role("button", name="Save as CSV").first.click()
    text = Path(table.value.path()).read_text()
    assert text == server.client().get(f"/v1/releases/{oldest}/top?n=20&format=csv").text.replace(".0,", ",").replace(
        ".0\n", "\n"
    )


def test_what_programs_can_ask_is_on_the_page(tab: Visit, server: Server) -> None:
    tab.open("/releases")
    tab.page.get_by_role("link", name="For programs").click()
    expect(tab.page.get_by_role("heading", name="For programs")).to_be_visible()
    described = server.client().get("/openapi.json").json()["paths"]
    wanted = {f"{method.upper()} {path}" for path, methods in described.items() for method in methods}
    assert set(tab.page.locator("main h3").all_inner_texts()) == wanted
    assert tab.page.get_by_role("link", name="openapi.json").get_attribute("href") == "openapi.json"


def test_a_link_with_a_ticket_takes_part_once(browser: Browser, server: Server) -> None:
    admin = server.client(server.environment["token"])
    asked = {"name": "Fruit", "spec": PROTOCOL.to_json(), "candidates": ["apple", "pear"], "tickets": "once"}
    made = admin.post("/v1/collections", json=asked).json()
    ticket = tickets.issue(made["ticket_key"], made["id"], subject="ann", expires=time.time() + 600)

    def take_part(words: str) -> Visit:
        with visit(browser, server.url, may_fail=True) as tab:
            page = tab.page
            page.goto(f"{server.url}/#/demo/{made['id']}/{ticket}")
            page.get_by_label("apple").check()
            page.get_by_role("button", name="Randomise").click()
            assert ticket not in page.url
            expect(page.get_by_label("Your ticket")).to_have_value(ticket)
            page.get_by_role("button", name="Send it").click()
            expect(page.locator("main")).to_contain_text(words)
            return tab

    seen = take_part("Sent, and stored.")
    [report] = seen.sent("/reports")
    assert report.headers["dpsketch-ticket"] == ticket
    assert all(ticket not in request.url for request in seen.requests)
    take_part("This ticket has had its report")  # another browser, the same ticket
    assert httpx.get(f"{server.url}/v1/collections/{made['id']}").json()["reports"] == 1
