"""Taking part at the service's page: one report a person and collection, kept before it is shown, and counted once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Playwright, Route, expect, sync_playwright

from browsing import DEMO, Visit, collection, service, visit
from dpsketch import local

CHROMIUM = shutil.which("chromium")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="the page in a browser: chromium is not installed")


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
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


def draw(page: Page, fruit: str) -> str:
    page.get_by_label(fruit).check()
    page.get_by_role("button", name="Randomise").click()
    return shown(page)


def shown(page: Page) -> str:
    text = page.get_by_label("What will be sent", exact=True)
    expect(text).to_contain_text("bucket")
    return text.inner_text()


def spent(page: Page) -> str:
    return page.locator(".cost").inner_text()


def reload(tab: Visit) -> None:
    tab.page.reload()
    tab.page.wait_for_function("() => document.querySelector('main h1')")
    tab.settle()


def test_a_report_is_drawn_once_and_cannot_be_rolled_again(tab: Visit, demo: str) -> None:
    tab.open(f"/demo/{collection(demo)['id']}")
    assert "ε = 0 " in spent(tab.page)
    first = draw(tab.page, "mango")
    assert "ε = 2 " in spent(tab.page)  # it is charged when it is drawn, not when it is sent
    expect(tab.page.get_by_role("button", name="Randomise")).to_be_hidden()
    for _ in range(3):
        reload(tab)
        assert shown(tab.page) == first
        assert "ε = 2 " in spent(tab.page)
        expect(tab.page.get_by_role("button", name="Randomise")).to_be_hidden()


def test_a_second_submission_gives_the_first_report(tab: Visit, demo: str) -> None:
    """The button is hidden; whoever submits the form all the same has another choice answered with the old report."""
    tab.open(f"/demo/{collection(demo)['id']}")
    first = draw(tab.page, "mango")
    again = tab.page.evaluate(
        """async () => {
          const fig = [...document.querySelectorAll("input[name=choice]")].find((one) => one.value === "fig");
          fig.checked = true;
          fig.form.requestSubmit();
          await new Promise((done) => setTimeout(done, 300));
          return document.querySelector(".body").textContent;
        }"""
    )
    assert again == first
    assert "ε = 2 " in spent(tab.page)


def test_a_report_that_was_sent_is_sent_and_spent_after_a_reload_too(tab: Visit, demo: str) -> None:
    before = collection(demo)["reports"]
    tab.open(f"/demo/{collection(demo)['id']}")
    first = draw(tab.page, "pear")
    tab.page.get_by_role("button", name="Send it").click()
    expect(tab.page.get_by_text("Sent, and stored.")).to_be_visible()
    reload(tab)
    assert shown(tab.page) == first
    assert "ε = 2 " in spent(tab.page)
    tab.page.get_by_role("button", name="Send it").click()
    expect(tab.page.get_by_role("alert").filter(visible=True)).to_contain_text("sent already")
    assert collection(demo)["reports"] == before + 1


def test_a_report_whose_sending_failed_is_the_one_sent_later(browser: Browser, demo: str) -> None:
    before = collection(demo)["reports"]
    with visit(browser, demo, may_fail=True) as seen:
        seen.open(f"/demo/{collection(demo)['id']}")
        first = draw(seen.page, "pear")
        seen.page.route("**/reports", lambda route: route.abort())
        seen.page.get_by_role("button", name="Send it").click()
        expect(seen.page.get_by_role("alert").filter(visible=True)).to_contain_text("cannot be reached")
        seen.page.unroute("**/reports")
        reload(seen)
        seen.page.get_by_role("button", name="Send it").click()
        expect(seen.page.get_by_text("Sent, and stored.")).to_be_visible()
        assert {request.post_data for request in seen.sent("/reports")} == {first}
    assert collection(demo)["reports"] == before + 1


def test_two_tabs_draw_one_report(tab: Visit, demo: str) -> None:
    """Both are open before either draws, and both draw at once, twenty times over."""
    tab.open(f"/demo/{collection(demo)['id']}")
    other = tab.page.context.new_page()
    other.goto(tab.page.url)
    other.wait_for_function("() => document.querySelector('.choice')")
    first = draw(tab.page, "mango")
    second = draw(other, "apple")
    assert first == second
    assert "ε = 2 " in spent(other)
    announced = collection(demo)["spec"]
    race = """async ([person, announced, own]) => {
      const { reportOnce } = await import("/page/taking.js");
      const { readSpec } = await import("/client.js");
      const spec = readSpec(announced, { maxEpsilon: 2 });
      window[person] = reportOnce(person, spec, [own], 1000);
    }"""
    for number in range(20):
        person = f"race-{number}"
        for page, own in ((tab.page, "mango"), (other, "apple")):
            page.evaluate(race, [person, announced, own])
        found = [
            page.evaluate("async (person) => (await window[person]).message", person) for page in (tab.page, other)
        ]
        assert found[0] == found[1]


def answer_with(one: dict[str, Any]) -> Any:
    """Answer the page's question about a collection ourselves."""
    return lambda route: route.fulfill(status=200, content_type="application/json", body=json.dumps(one))


def test_collections_share_the_budget_of_this_browser(tab: Visit, demo: str) -> None:
    """A service that asks the same under three names gets what the person agreed to, and no more."""
    whole = collection(demo)
    for number in range(3):
        tab.page.route(f"**/collections/copy{number}", answer_with({**whole, "id": f"copy{number}"}))
    for number in range(2):
        tab.open(f"/demo/copy{number}")
        draw(tab.page, "mango")
        assert f"ε = {2 * (number + 1)} " in spent(tab.page)
    tab.open("/demo/copy2")
    tab.page.get_by_label("mango").check()
    tab.page.get_by_role("button", name="Randomise").click()
    expect(tab.page.get_by_role("alert").filter(visible=True)).to_contain_text("Nothing was drawn")
    expect(tab.page.get_by_role("button", name="Send it")).to_be_hidden()
    reload(tab)
    assert "ε = 4 " in spent(tab.page)


def test_what_a_report_names_is_told_only_after_it_was_sent(tab: Visit, demo: str) -> None:
    """Whoever could see it before would send the true ones only."""
    tab.open(f"/demo/{collection(demo)['id']}")
    draw(tab.page, "mango")
    step = tab.card("2. Look at what will be sent")
    expect(step).not_to_contain_text("which holds")
    reload(tab)
    expect(step).not_to_contain_text("which holds")
    tab.page.get_by_role("button", name="Send it").click()
    expect(step).to_contain_text("which holds, of this list")
    reload(tab)
    expect(step).to_contain_text("which holds, of this list")


def test_the_choice_is_not_kept(tab: Visit, demo: str) -> None:
    tab.open(f"/demo/{collection(demo)['id']}")
    draw(tab.page, "mango")
    kept = tab.page.evaluate(
        """async () => {
          const all = await (await import("/page/taking.js")).kept();
          return JSON.stringify([all, { ...localStorage }, { ...sessionStorage }]);
        }"""
    )
    assert "bucket" in kept
    assert "mango" not in kept


@pytest.mark.parametrize(
    "forge",
    [
        lambda one: {**one, "guarantee": {**one["guarantee"], "epsilon": 0.01}},
        lambda one: {**one, "guarantee": {**one["guarantee"], "holds": False}},
        lambda one: {
            **one,
            "spec": {**one["spec"], "epsilon": 0.01},
            "guarantee": {**one["guarantee"], "epsilon": 0.01},
        },
        lambda one: {**one, "spec": local.PrivSketchAsPublished(2.0).to_json()},
    ],
    ids=["other epsilon", "does not hold", "fingerprint", "not private"],
)
def test_an_announcement_that_contradicts_itself_is_refused(browser: Browser, demo: str, forge: Any) -> None:
    one = collection(demo)

    def answer(route: Route) -> None:
        answer_with(forge(one))(route)

    with visit(browser, demo) as seen:
        seen.page.route(f"**/collections/{one['id']}", answer)
        seen.open(f"/demo/{one['id']}")
        expect(seen.page.get_by_role("alert").filter(visible=True)).to_contain_text("do not take part")
        expect(seen.page.get_by_role("button", name="Randomise")).to_have_count(0)


def test_without_a_memory_nothing_is_drawn(browser: Browser, demo: str) -> None:
    with visit(browser, demo) as seen:
        seen.page.add_init_script("Object.defineProperty(window, 'indexedDB', { value: undefined })")
        seen.open(f"/demo/{collection(demo)['id']}")
        expect(seen.page.get_by_role("alert").filter(visible=True)).to_contain_text("cannot remember")
        expect(seen.page.get_by_role("button", name="Randomise")).to_have_count(0)


def test_the_memory_outlives_the_browser(playwright: Playwright, demo: str, tmp_path: Path) -> None:
    texts: list[str] = []
    for _ in range(2):
        context = playwright.chromium.launch_persistent_context(tmp_path / "profile", executable_path=CHROMIUM)
        page = context.new_page()
        page.goto(f"{demo}/#/demo/{collection(demo)['id']}")
        page.wait_for_function("() => document.querySelector('main h1')")
        texts.append(shown(page) if texts else draw(page, "mango"))
        assert "ε = 2 " in spent(page)
        context.close()
    assert texts[0] == texts[1]
