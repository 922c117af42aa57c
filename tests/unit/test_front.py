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


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.name)
def test_links_of_the_pages_beside_the_sources_lead_somewhere(page: Path) -> None:
    """Links between the pages of the site are checked when it is built."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
