"""Taking part at the service's page: one report a person and collection, kept before it is shown, and counted once.

``test_page.py`` has what the quick suite runs of it.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from browsing import Visit, collection, visit
from dpsketch import local

pytestmark = pytest.mark.full


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


def refusal(page: Page) -> Any:
    return expect(page.get_by_role("alert").filter(visible=True))


def reload(tab: Visit) -> None:
    tab.page.reload()
    tab.page.wait_for_function("() => document.querySelector('main h1')")
    tab.settle()


def test_a_report_whose_sending_failed_is_the_one_sent_later(browser: Browser, demo: str) -> None:
    """What it names is told only after it was sent: whoever could see it before would send the true ones only."""
    before = collection(demo)["reports"]
    with visit(browser, demo, may_fail=True) as seen:
        seen.open(f"/demo/{collection(demo)['id']}")
        first = draw(seen.page, "pear")
        seen.page.route("**/reports", lambda route: route.abort())
        seen.page.get_by_role("button", name="Send it").click()
        refusal(seen.page).to_contain_text("cannot be reached")
        seen.page.unroute("**/reports")
        reload(seen)
        step = seen.card("2. Look at what will be sent")
        expect(step).not_to_contain_text("which holds")
        seen.page.get_by_role("button", name="Send it").click()
        expect(seen.page.get_by_text("Sent, and stored.")).to_be_visible()
        expect(step).to_contain_text("which holds, of this list")
        assert {request.post_data for request in seen.sent("/reports")} == {first}
    assert collection(demo)["reports"] == before + 1


def test_two_tabs_draw_one_report(tab: Visit, demo: str) -> None:
    """Both are open before either draws, and both draw at once, twenty times over."""
    tab.open(f"/demo/{collection(demo)['id']}")
    other = tab.page.context.new_page()
    other.goto(tab.page.url)
    other.wait_for_function("() => document.querySelector('.choice')")
    assert draw(tab.page, "mango") == draw(other, "apple")
    assert "ε = 2 " in spent(other)
    announced = collection(demo)["spec"]
    race = """async ([person, announced, own]) => {
      const { reportOnce } = await import("/page/taking.js");
      const { readSpec } = await import("/client.js");
      const spec = readSpec(announced, { maxEpsilon: 2 });
      window[person] = reportOnce(person, spec, [own], 1000);
    }"""
    result = "async (person) => (await window[person]).message"
    for number in range(20):
        person = f"race-{number}"
        for page, own in ((tab.page, "mango"), (other, "apple")):
            page.evaluate(race, [person, announced, own])
        assert tab.page.evaluate(result, person) == other.evaluate(result, person)


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
    refusal(tab.page).to_contain_text("Nothing was drawn")
    expect(tab.page.get_by_role("button", name="Send it")).to_be_hidden()


@pytest.mark.parametrize(
    ("promise", "spec"),
    [({"epsilon": 0.01}, {}), ({"holds": False}, {}), ({"epsilon": 0.01}, {"epsilon": 0.01}),
     ({}, local.PrivSketchAsPublished(2.0).to_json())],
    ids=["other epsilon", "does not hold", "fingerprint", "not private"],
)  # fmt: skip
def test_an_announcement_that_contradicts_itself_is_refused(tab: Visit, demo: str, promise: Any, spec: Any) -> None:
    one = collection(demo)
    announced = spec if "protocol" in spec else {**one["spec"], **spec}
    forged = {**one, "guarantee": {**one["guarantee"], **promise}, "spec": announced}
    tab.page.route(f"**/collections/{one['id']}", answer_with(forged))
    tab.open(f"/demo/{one['id']}")
    refusal(tab.page).to_contain_text("do not take part")
    expect(tab.page.get_by_role("button", name="Randomise")).to_have_count(0)


def test_without_a_memory_nothing_is_drawn(tab: Visit, demo: str) -> None:
    tab.page.add_init_script("Object.defineProperty(window, 'indexedDB', { value: undefined })")
    tab.open(f"/demo/{collection(demo)['id']}")
    refusal(tab.page).to_contain_text("cannot remember")
    expect(tab.page.get_by_role("button", name="Randomise")).to_have_count(0)
