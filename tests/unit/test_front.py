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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_command_writes_is_there_and_names_its_writer(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = WRITTEN.findall(text)
    assert len(found) == text.count("<!-- end -->") >= 2
    for name, writer, content in found:
        assert content.strip(), f"{writer} has not written {name}"
        assert (ROOT / writer).exists()


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
    assert {"delays", "different", "places", "days"} <= measured.keys()
    for name, rows in measured.items():
        assert all(f"| {' | '.join(row)} |" in tables[name] for row in rows), name


def test_words_of_the_main_pages_are_in_the_glossary() -> None:
    """Every link to the glossary names a word of it, and the front page, the tutorial and the argument link there."""
    glossary = (DOCS / "glossary.md").read_text(encoding="utf-8")
    anchors = set(re.findall(r"\{ #(\w+) \}", glossary))
    anchors |= {
        title.strip().lower().replace(" ", "-") for title in re.findall(r"^## ([\w -]+)$", glossary, re.MULTILINE)
    }
    for word in ("unit", "neighbour", "epsilon", "delta", "rho", "clipping", "sketch", "release"):
        assert word in anchors
    for name in ("index.md", "tutorial.md", "explanation/trust.md", "how-to/decide.md"):
        linked = re.findall(r"glossary\.md(?:#([\w-]+))?\)", (DOCS / name).read_text(encoding="utf-8"))
        assert linked, f"{name} does not link to the glossary"
        assert {word for word in linked if word} <= anchors


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
