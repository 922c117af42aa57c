"""The service's page, in a real browser against a real ``dpsketch serve --demo``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from playwright.sync_api import Browser, expect, sync_playwright

import dpsketch as dps
from browsing import AXE, DEMO, Visit, ask, collection, releases, service, use, views, visit
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


@pytest.mark.parametrize(
    ("look", "width", "scheme"), [("wide", 1200, "light"), ("dark", 1200, "dark"), ("phone", 360, "light")]
)
def test_every_view_fits_its_screen_and_can_be_read(
    browser: Browser, demo: str, look: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    with visit(browser, demo, width=width, height=740 if width < 500 else 900, scheme=scheme) as seen:
        for name, route in views(demo).items():
            seen.open(route)
            use(seen, name)
            seen.keep_picture(f"{name}-{look}")
            assert seen.overflow() <= 0, name
            contrast = seen.poor_contrast()
            assert contrast["poor"] == [], name
            assert contrast["seen"] > 10, name


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed (tests/install_components.sh)")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_any_view(browser: Browser, demo: str, scheme: Literal["light", "dark"]) -> None:
    with visit(browser, demo, scheme=scheme) as seen:
        for name, route in views(demo).items():
            seen.open(route)
            use(seen, name)
            assert seen.violations() == [], name
        seen.page.get_by_role("button", name="Sign in").click()
        assert seen.violations() == [], "the dialog for a token"
        seen.page.get_by_role("button", name="Close").click()
        seen.page.evaluate("document.querySelector('main').innerHTML = '<img src=x><input>'")
        assert len(seen.violations()) >= 2, "axe finds what is planted"
        seen.errors.clear()  # the planted image is not there
        seen.requests.clear()


def test_the_check_of_contrast_finds_pale_text_and_that_of_width_a_wide_element(tab: Visit) -> None:
    tab.open("/releases")
    tab.page.evaluate("document.querySelector('.lead').style.color = 'rgb(160, 160, 160)'")
    assert len(tab.poor_contrast()["poor"]) == 1
    tab.page.evaluate("document.querySelector('.lead').style.width = '3000px'")
    tab.page.evaluate("document.querySelector('.lead').style.maxWidth = 'none'")
    assert tab.overflow() > 0


def test_a_key_is_looked_up_by_keyboard_alone(tab: Visit, demo: str) -> None:
    tab.open("/releases")
    keyboard = tab.page.keyboard

    def tab_to(words: str) -> None:
        for _ in range(40):
            keyboard.press("Tab")
            at = tab.focus()
            assert at["shown"], at["name"]
            if words in tab.page.evaluate(
                "document.activeElement.labels?.[0]?.textContent ?? document.activeElement.textContent"
            ):
                return
        raise AssertionError(f"{words} cannot be reached")

    tab_to("visits-by-page")
    keyboard.press("Enter")
    expect(tab.page.get_by_role("heading", level=1, name="visits-by-page")).to_be_focused()
    tab_to("Key, exactly as it was counted")
    keyboard.type("/news/0")
    keyboard.press("Enter")
    answer = tab.page.locator(".answer").first
    expect(answer).to_contain_text("/news/0: about")
    [found] = ask(demo, f"releases/{releases(demo)['counts']}/estimate", {"keys": ["/news/0"]})["estimates"]
    assert f"{found['value']:,.0f}" in answer.inner_text()
    assert f"between {found['low']:,.0f} and {found['high']:,.0f} with 95% confidence" in answer.inner_text()
    assert abs(found["value"] - 40_000) < 1000  # the noise has a standard deviation of about 25


def test_what_is_looked_up_is_in_no_address(tab: Visit, demo: str) -> None:
    tab.open(f"/releases/{releases(demo)['counts']}")
    tab.page.get_by_label("Key, exactly").fill("/shop/very-secret")
    tab.page.keyboard.press("Enter")
    answer = tab.page.locator(".answer").first
    expect(answer).to_contain_text("/shop/very-secret: about")
    [found] = ask(demo, f"releases/{releases(demo)['counts']}/estimate", {"keys": ["/shop/very-secret"]})["estimates"]
    assert ("cannot be told from zero" in answer.inner_text()) == (found["low"] <= 0 <= found["high"])
    assert len(tab.mentioned("very-secret")) == 1  # the body of the question; the search does find what is sent
    assert not any("very-secret" in one.url for one in tab.requests)


def test_a_key_is_shown_as_text_whatever_it_holds(tab: Visit, demo: str) -> None:
    tab.open(f"/releases/{releases(demo)['counts']}")
    tab.page.get_by_label("Key, exactly").fill("<img src=nowhere.png>&amp;")
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator(".answer").first).to_contain_text("<img src=nowhere.png>&amp;: about")
    assert not any("nowhere.png" in one.url for one in tab.requests)


def table_of(place: Any) -> list[list[str]]:
    place.get_by_text("The numbers as a table").first.click()
    rows = place.locator("tbody tr").all()
    return [row.locator("th, td").all_inner_texts() for row in rows]


def test_the_largest_keys_are_drawn_with_the_intervals_of_the_service(tab: Visit, demo: str) -> None:
    path = f"releases/{releases(demo)['counts']}"
    keys = [f"/docs/{number}" for number in range(12)]
    tab.open(f"/{path}")
    card = tab.card("The largest keys")
    card.get_by_label("Candidates").fill("\n".join(keys))
    card.get_by_label("How many").fill("7")
    card.get_by_role("button", name="Show the largest").click()
    expect(card.locator("rect.bar")).to_have_count(7)
    found = ask(demo, f"{path}/top", {"n": 7, "candidates": keys})["estimates"]
    assert [row[0] for row in table_of(card)] == [one["key"] for one in found]
    expect(card.locator("figcaption")).to_contain_text("hold for all 7 at once")
    # On the axis of the drawing, an interval's line is as long as the interval.
    bars = [float(bar.get_attribute("width") or 0) for bar in card.locator("rect.bar").all()]
    lines = card.locator("line.whisker").evaluate_all(
        """lines => lines.map((line) => ["x1", "x2", "y1", "y2"].map((name) => Number(line.getAttribute(name))))
                         .filter(([, , y1, y2]) => y1 === y2).map(([x1, x2]) => x2 - x1)"""
    )
    for one, bar, line in zip(found, bars, lines, strict=True):
        assert line / bar == pytest.approx((one["high"] - one["low"]) / one["value"], rel=1e-9)
    card.get_by_role("button", name="Decode together").click()
    expect(card.locator("figcaption")).to_contain_text("picked for being large")


def test_a_higher_confidence_asks_again_for_wider_intervals(tab: Visit, demo: str) -> None:
    tab.open(f"/releases/{releases(demo)['counts']}")
    tab.page.get_by_label("Key, exactly").fill("/help/1")
    tab.page.keyboard.press("Enter")
    answer = tab.page.locator(".answer").first
    expect(answer).to_contain_text("95% confidence")
    tab.page.get_by_label("Confidence of the intervals").select_option("99%")
    expect(answer).to_contain_text("99% confidence")


def test_frequent_keys_are_listed_without_being_named(tab: Visit, demo: str) -> None:
    tab.open(f"/releases/{releases(demo)['heavy']}")
    rows = table_of(tab.card("The largest keys"))
    assert [row[0] for row in rows[:3]] == ["/news/0", "/shop/0", "/help/0"]


def test_the_map_tells_its_numbers_to_keys_and_to_the_mouse(tab: Visit, demo: str) -> None:
    path = f"releases/{releases(demo)['density']}"
    tab.open(f"/{path}")
    grid = ask(demo, f"{path}/grid?size=64")
    readout = tab.page.locator(".readout")
    tab.page.locator(".map").focus()
    assert tab.focus()["shown"]
    expect(readout).to_contain_text(f"density {grid['values'][32][32]:.3g} at east 5.08, north 5.08")
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft"):
        tab.page.keyboard.press(key)
    expect(readout).to_contain_text(f"density {grid['values'][34][31]:.3g} at east 4.92, north 5.39")
    tab.page.keyboard.press("Enter")
    answer = tab.page.locator(".answer")
    expect(answer).to_contain_text("Density at east 4.92, north 5.39: about")
    [found] = ask(demo, f"{path}/density", {"points": [[4.921875, 5.390625]]})["densities"]
    assert f"about {found['value']:.3g}," in answer.inner_text()
    tab.page.locator(".map .cells").hover(position={"x": 5, "y": 5})
    expect(readout).to_contain_text(f"density {grid['values'][63][0]:.3g} at east 0.0781, north 9.92")
    numbers = tab.page.locator(".map text").all_text_contents()
    assert {"east", "north", "density"} < set(numbers)  # the axes and the scale are written, not only coloured
    assert len(tab.page.locator(".map path.contour").all()) >= 4


def test_statements_and_ranges_are_said_in_words(tab: Visit, demo: str) -> None:
    tab.open(f"/releases/{releases(demo)['distinct']}")
    expect(tab.card("What it states").locator(".answer")).to_contain_text("distinct keys: about")
    tab.open(f"/releases/{releases(demo)['moment']}")
    expect(tab.card("What it states").locator(".answer")).to_contain_text("F_0.5: about")
    tab.open(f"/releases/{releases(demo)['ranges']}")
    expect(tab.card("Find a quantile").locator(".answer")).to_contain_text("50%: about")
    card = tab.card("Count a range")
    card.get_by_role("button", name="Count").click()
    expect(card.get_by_role("alert")).to_contain_text("The ends of a range are whole numbers.")
    card.get_by_label("From", exact=True).fill("8")
    card.get_by_label("To", exact=True).fill("20")
    tab.page.keyboard.press("Enter")
    expect(card.locator(".answer")).to_contain_text("8:20: about")
    expect(card.get_by_role("alert")).to_be_hidden()


def test_promise_and_budget_stand_beside_the_answers(tab: Visit, demo: str) -> None:
    whole = ask(demo, f"releases/{releases(demo)['counts']}")
    tab.open(f"/releases/{whole['id']}")
    promised = tab.card("What is promised")
    first, *others = re.split(r"(?<=[.;:]) (?=[A-Z])", whole["guarantee"]["words"])
    expect(promised.get_by_text(first)).to_be_visible()
    expect(promised.get_by_text(others[0])).to_be_hidden()
    promised.get_by_text("In full").click()
    for sentence in others:
        expect(promised.get_by_text(sentence)).to_be_visible()
    [budget] = [one for one in ask(demo, "ledger")["datasets"] if one["dataset"] == whole["facts"]["charge"]["dataset"]]
    for where in (f"/releases/{whole['id']}", "/budget"):
        tab.open(where)
        shown = tab.page.locator(".budget", has_text=budget["dataset"]).first
        expect(shown).to_contain_text(budget["words"])
        assert float(shown.get_by_role("meter").get_attribute("aria-valuenow") or "nan") == pytest.approx(
            budget["share"]
        )


def post_reports(address: str, one: dict[str, Any], people: list[list[str]]) -> None:
    protocol = local.SubsetHashing(
        **{name: one["spec"][name] for name in ("epsilon", "max_items", "width", "seeds", "seed", "key_type")}
    )
    body = b"".join(protocol.to_bytes(protocol.report(people)))
    reply = httpx.post(
        f"{address}/v1/collections/{one['id']}/reports",
        content=body,
        headers={"Content-Type": "application/octet-stream"},
    )
    assert reply.json()["accepted"] == len(people)


def test_a_collection_is_shown_as_it_grows_until_it_is_paused(tab: Visit, demo: str) -> None:
    one = collection(demo)
    tab.open(f"/collections/{one['id']}")
    count = tab.page.locator(".big")
    expect(count).to_have_text(f"{one['reports']:,}")
    expect(tab.card("Share of people").locator("rect.bar")).to_have_count(8)
    history = tab.card("How sharp the answer has become")
    assert len(history.locator("circle.dot").all()) >= 5
    assert len(history.locator("path.dashed").all()) == 1  # the prediction differs by its dashes, not by hue alone
    post_reports(demo, one, [["fig"]] * 500)
    expect(count).to_have_text(f"{one['reports'] + 500:,}")  # without a reload
    tab.page.get_by_role("button", name="Pause").click()
    expect(tab.page.get_by_text("Paused.")).to_be_visible()
    tab.page.wait_for_load_state("networkidle")
    before = len(tab.requests)
    tab.page.wait_for_timeout(4000)
    assert len(tab.requests) == before
    tab.page.get_by_role("button", name="Go on").click()
    tab.page.wait_for_timeout(500)
    assert len(tab.requests) > before


def test_a_collection_is_saved_as_a_file(tab: Visit, demo: str, tmp_path: Path) -> None:
    one = collection(demo)
    tab.open(f"/collections/{one['id']}")
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name="Save as .dps").click()
    assert download.value.suggested_filename == "Favourite-fruit.dps"
    download.value.save_as(tmp_path / "fruit.dps")
    assert dps.load(tmp_path / "fruit.dps").users >= one["reports"]


def test_only_the_randomised_report_leaves_the_page(tab: Visit, demo: str) -> None:
    one = collection(demo)
    tab.open(f"/demo/{one['id']}")
    tab.page.get_by_label("mango").check()
    tab.page.get_by_role("button", name="Randomise").click()
    expect(tab.page.get_by_label("What will be sent", exact=True)).to_contain_text("bucket")
    shown = tab.page.get_by_label("What will be sent", exact=True).inner_text()
    assert tab.sent("/reports") == []  # nothing leaves before the person says so
    tab.page.get_by_role("button", name="Send it").click()
    expect(tab.page.get_by_text("Sent, and stored.")).to_be_visible()
    [request] = tab.sent("/reports")
    assert request.post_data == shown
    assert set(json.loads(shown)) == {"dpsketch", "spec", "id", "seed", "bucket"}
    assert tab.mentioned("mango") == []
    assert collection(demo)["reports"] == one["reports"] + 1
    tab.page.get_by_role("button", name="Send it").click()
    expect(tab.page.get_by_role("alert").filter(visible=True)).to_contain_text("sent already")
    assert len(tab.sent("/reports")) == 1


REPORTS = 400


def share_of_mango(texts: list[str]) -> float:
    collector = local.SubsetHashing(epsilon=2.0, max_items=1, key_type="text").collector()
    assert collector.receive(texts).accepted == REPORTS
    return float(collector.estimate(["mango"]).value[0])


def test_the_page_randomises_by_the_law_of_the_protocol(tab: Visit, demo: str) -> None:
    """The share among 400 reports of one choice within six standard errors of 1 (2e-9), that of true buckets not."""
    tab.open(f"/demo/{collection(demo)['id']}")
    randomised = tab.page.evaluate(
        """async ([number, announced]) => {
          const { readSpec } = await import("/client.js");
          const { reportOnce } = await import("/page/taking.js");
          const spec = readSpec(announced, { maxEpsilon: 2 });
          const texts = [];
          for (let k = 0; k < number; k++) {
            texts.push((await reportOnce(`person ${k}`, spec, ["mango"], 2 * number)).message);
          }
          return texts;
        }""",
        [REPORTS, collection(demo)["spec"]],
    )
    plain = tab.page.evaluate(
        """async ([number, announced]) => {
          const { decide, readSpec, report, toObject } = await import("/client.js");
          const spec = readSpec(announced, { maxEpsilon: 2 });
          return Array.from({ length: number }, () => {
            const made = report(spec, ["mango"]);
            const bucket = decide(spec, ["mango"], made.seed, { inside: 0n, choice: 0n, order: 0n });
            return JSON.stringify(toObject(spec, { ...made, bucket }));
          });
        }""",
        [REPORTS, collection(demo)["spec"]],
    )
    allowed = 6 * local.SubsetHashing(epsilon=2.0, max_items=1).variance(1.0, REPORTS) ** 0.5
    assert abs(share_of_mango(randomised) - 1) < allowed
    assert abs(share_of_mango(plain) - 1) > allowed
    assert tab.sent("/reports") == []


def test_a_person_can_agree_to_less_than_the_collector_asks(tab: Visit, demo: str) -> None:
    tab.open(f"/demo/{collection(demo)['id']}")
    tab.page.get_by_label("fig").check()
    tab.page.get_by_label("The most that all your reports").fill("1")
    tab.page.get_by_role("button", name="Randomise").click()
    expect(tab.page.get_by_role("alert").filter(visible=True)).to_contain_text("at most 1 was agreed to")
    expect(tab.page.get_by_role("button", name="Send it")).to_be_hidden()


def test_failures_are_said_in_plain_words(browser: Browser, demo: str) -> None:
    with visit(browser, demo, may_fail=True) as seen:
        seen.open("/releases/nothing")
        expect(seen.page.get_by_role("alert")).to_contain_text("There is no such release.")
        seen.open("/elsewhere")
        expect(seen.page.get_by_role("alert")).to_contain_text("There is no such view.")
        seen.page.route("**/v1/**", lambda route: route.abort())
        seen.open("/collections")
        expect(seen.page.get_by_role("alert")).to_contain_text("The service cannot be reached.")


def test_motion_is_left_out_where_it_is_not_wanted(browser: Browser, demo: str) -> None:
    durations = []
    for motion in ("no-preference", "reduce"):
        with visit(browser, demo, motion=motion) as seen:
            seen.open("/releases")
            durations.append(seen.page.evaluate("getComputedStyle(document.querySelector('main')).transitionDuration"))
    assert durations == ["0.12s", "0s"]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A service that is open to nobody, and its administrator's token."""
    folder = tmp_path_factory.mktemp("closed")
    store = f"--store={folder / 'service.db'}"
    command = [
        sys.executable,
        "-m",
        "dpsketch",
        "serve",
        store,
        "token",
        "create",
        "--scope=admin",
        "--name=x",
        "--json",
    ]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    with service(folder / "log", store) as address:
        yield address, json.loads(made.stdout)["token"]


def test_a_token_opens_a_closed_service_for_this_tab_alone(browser: Browser, closed: tuple[str, str]) -> None:
    address, token = closed
    with visit(browser, address, may_fail=True) as seen:
        seen.open("/releases")
        page = seen.page
        expect(page.get_by_role("heading", name="Please sign in")).to_be_visible()
        expect(page.locator("main")).to_contain_text("Sign in with the token that whoever runs it gave you.")
        page.locator("main").get_by_role("button", name="Sign in").click()
        page.get_by_label("Token", exact=True).fill(token)
        page.keyboard.press("Enter")
        expect(page.get_by_role("status").filter(has_text="You may: collect, read, admin")).to_be_visible()
        page.get_by_role("button", name="Close").click()
        expect(page.get_by_text("There are none yet.")).to_be_visible()
        kept = page.evaluate("[localStorage.length, document.cookie, Object.values(sessionStorage)]")
        assert kept == [0, "", [token]]
        assert not any(token in one.url for one in seen.requests)
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("button", name="Forget it").click()
        expect(page.get_by_role("status").filter(has_text="Sign in to see what is here.")).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0


def test_a_collection_without_reports_or_candidates_can_be_watched(browser: Browser, closed: tuple[str, str]) -> None:
    address, token = closed
    spec = local.SubsetHashing(epsilon=2.0, max_items=2, key_type="text").to_json()
    headers = {"Authorization": f"Bearer {token}"}
    made = httpx.post(f"{address}/v1/collections", json={"name": "apps", "spec": spec}, headers=headers).json()
    with visit(browser, address) as seen:
        seen.page.add_init_script(f"sessionStorage.setItem('dpsketch-token', '{token}')")
        seen.open(f"/collections/{made['id']}")
        expect(seen.page.get_by_text("Estimates appear with the first reports.")).to_be_visible()
        seen.open(f"/demo/{made['id']}")
        seen.page.get_by_label("Your items").fill("maps, chess")
        seen.page.get_by_role("button", name="Randomise").click()
        seen.page.get_by_role("button", name="Send it").click()
        seen.page.get_by_role("link", name="See what everyone said").click()
        seen.page.get_by_label("Items to estimate").fill("maps\nradio")
        seen.page.get_by_role("button", name="Estimate").click()
        expect(seen.card("Share of people").locator("rect.bar")).to_have_count(2)
        said = "Counted: shares of people, clipped: at most 2 items counted of each."
        expect(seen.card("Share of people").get_by_text(said)).to_be_visible()
        seen.keep_picture("collection-without-candidates-wide")
