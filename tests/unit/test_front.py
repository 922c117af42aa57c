"""The front pages: their tables have writers, their pictures exist, and words link to the glossary."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", DOCS / "index.md", DOCS / "explanation" / "papers.md"]
WRITTEN = re.compile(r"^<!-- (\w+): (docs/figures/\w+\.py) -->\n(.*?)^<!-- end -->$", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)]+)\)")


@pytest.mark.parametrize(
    "page", [*PAGES, DOCS / "explanation" / "histogram.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_what_a_command_writes_is_there_and_names_its_writer(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = WRITTEN.findall(text)
    assert len(found) == text.count("<!-- end -->") >= 1
    kept = json.loads((DOCS / "figures" / "written.json").read_text(encoding="utf-8"))[str(page.relative_to(ROOT))]
    assert {f"{name}: {writer}": content.strip() for name, writer, content in found} == {
        name: content.strip() for name, content in kept.items()
    }, "a page has what its commands wrote: run them, and change no number by hand"
    assert all((ROOT / writer).exists() for _, writer, _ in found)


@pytest.mark.parametrize("page", [*PAGES, DOCS / "tutorial.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_pictures_exist(page: Path) -> None:
    found = PICTURE.findall(page.read_text(encoding="utf-8"))
    assert found
    assert all((page.parent / name).stat().st_size > 1_000 for name in found)


def test_the_six_questions_have_commands_pictures_and_rivals() -> None:
    section = (DOCS / "index.md").read_text(encoding="utf-8").split("## Six questions\n")[1].split("\n## ")[0]
    questions = section.split("\n### ")[1:]
    assert len(questions) == 6
    for question in questions:
        assert "```" in question
        assert PICTURE.search(question)
        (written,) = WRITTEN.findall(question)
        assert written[2].count("\n| ") >= 3, "ours and at least one rival"


def test_rows_of_other_libraries_are_those_that_were_measured() -> None:
    measured = json.loads((DOCS / "figures" / "front-rivals.json").read_text(encoding="utf-8"))
    tables = {name: text for name, _, text in WRITTEN.findall((DOCS / "index.md").read_text(encoding="utf-8"))}
    assert {"delays", "different", "places", "days"} == measured.keys()
    for name, rows in measured.items():
        assert all(f"| {' | '.join(row)} |" in tables[name] for row in rows), name


def test_the_first_comparison_shows_names_and_errors_of_every_library_at_its_best() -> None:
    """Rows are chosen from all settings that were tried; README and index have the same table."""
    measured = json.loads((DOCS / "figures" / "front-names.json").read_text(encoding="utf-8"))
    tried, shown = measured["tried"], measured["shown"]
    assert measured["releases"] >= 20
    pages = [{name: text for name, _, text in WRITTEN.findall(page.read_text(encoding="utf-8"))} for page in PAGES[:2]]
    assert pages[0]["names"] == pages[1]["names"]
    for library in ("OpenDP", "PipelineDP", "Tumult"):
        settings = [each for each in tried if each["library"] == library]
        assert len({each["cap"] for each in settings}) >= 8
        if library != "Tumult":  # it has no Gaussian noise where it finds groups
            assert {"Laplace", "Gaussian"} <= {each["setting"].split()[0] for each in settings}
        most = max(each["named"] for each in settings)
        least = min(each["error"] for each in settings if each["named"] >= most / 2)
        rows = [each for each in shown if each["library"] == library]
        assert max(each["named"] for each in rows) == most
        assert min(each["error"] for each in rows) == least
        for each in rows:
            numbers = (each[name] for name in ("named", "error", "absolute", "error_of_common"))
            way = f"| {library}, {each['setting']}, cap {each['cap']} ({each['best']}) | "
            assert way + " | ".join(f"{number:.0f}" for number in numbers) + " |" in pages[0]["names"]
    ours = [line for line in pages[0]["names"].splitlines() if line.startswith("| dpsketch, ")]
    assert [line.split(",")[1].strip() for line in ours] == ["default", '`form="gaussian"`']


def test_words_of_the_main_pages_are_in_the_glossary() -> None:
    """Every link to the glossary names a word of it, and the front page, the tutorial and the argument link there."""
    glossary = (DOCS / "glossary.md").read_text(encoding="utf-8")
    anchors = set(re.findall(r"\{ #(\w+) \}", glossary))
    anchors |= {
        title.strip().lower().replace(" ", "-") for title in re.findall(r"^## ([\w -]+)$", glossary, re.MULTILINE)
    }
    for word in ("unit", "neighbour", "epsilon", "delta", "rho", "clipping", "sketch", "release"):
        assert word in anchors
    for page in DOCS.rglob("*.md"):
        linked = re.findall(r"glossary\.md#([\w-]+)\)", page.read_text(encoding="utf-8"))
        assert set(linked) <= anchors, page


WORDS = {
    "unit": "units?", "neighbour": "neighbours?", "epsilon": "ε", "delta": "δ", "rho": "ρ",
    "clipping": "clipping|clipped|clips?", "sketch": "sketch(?:es)?", "release": "releases?",
}  # fmt: skip


def prose(text: str) -> str:
    """A page without code, comments, pictures, captions, headings, and links to other pages."""
    for left_out in (
        r"^```.*?^```$", r"<!--.*?-->", r"!\[[^\]]*\]\([^)]*\)", r"^#[^\n]*$", r"^\*All [^\n]*\*$", r"`[^`\n]*`",
        r"\[[^\]]*\]\((?![^)]*glossary)[^)]*\)",
    ):  # fmt: skip
        text = re.sub(left_out, "", text, flags=re.MULTILINE | re.DOTALL)
    return text


def unexplained(text: str) -> list[str]:
    """The words of the glossary that a page uses before it links them."""
    bare = prose(text)
    linked = re.sub(r"\[[^\]]*\]\([^)]*glossary\.md#(\w+)\)", r"<\1>", bare)
    found = []
    for word, forms in WORDS.items():
        used = re.search(rf"(?<![\w<])(?:{forms})(?![\w>])", linked, re.IGNORECASE)
        link = linked.find(f"<{word}>")
        if used and not 0 <= link < used.start():
            found.append(word)
    return found


@pytest.mark.parametrize(
    "name", ["index.md", "tutorial.md", "explanation/trust.md", "how-to/decide.md", "how-to/recipes.md"]
)
def test_a_word_of_the_glossary_is_a_link_where_it_first_appears(name: str) -> None:
    assert unexplained((DOCS / name).read_text(encoding="utf-8")) == []


def test_a_word_that_is_used_before_its_link_is_noticed() -> None:
    assert unexplained("At ε = 1, and [ε](glossary.md#epsilon) again.") == ["epsilon"]
    assert unexplained("At [ε](glossary.md#epsilon) = 1, `sketch`, and ε again.") == []


def test_there_are_twenty_recipes_and_each_is_a_command() -> None:
    text = (DOCS / "how-to" / "recipes.md").read_text(encoding="utf-8")
    parts = re.split(r"^\*\*\d+\. ", text, flags=re.MULTILINE)[1:]
    assert len(parts) == 20
    assert all("```console\ndpsketch " in part for part in parts)


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.name)
def test_links_of_the_pages_beside_the_sources_lead_somewhere(page: Path) -> None:
    """Links between the pages of the site are checked when it is built."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


ADDRESS = re.compile(r"https://[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?(?:[/?#][^\s<>\"'`]*)?")


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))], ids=lambda page: page.name)
def test_links_to_other_places_are_addresses(page: Path) -> None:
    """By their form: a test asks nobody. What is an example (``https://…``) is in code, and is no link."""
    links = re.findall(r"\]\((\w+:[^)\s]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not ADDRESS.fullmatch(link)] == []
