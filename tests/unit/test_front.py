"""The front pages: their tables have writers, their pictures exist, and they say what the benchmarks found."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import page as benchmarks
from benchmarks.__main__ import STORED

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


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.name)
def test_links_of_the_pages_beside_the_sources_lead_somewhere(page: Path) -> None:
    """Links between the pages of the site are checked when it is built."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_readme_and_benchmark_page_say_what_the_results_say() -> None:
    def block(path: Path) -> str:
        return path.read_text(encoding="utf-8").split(benchmarks.BEGIN)[1].split(benchmarks.END)[0].strip()

    results = json.loads(STORED.read_text(encoding="utf-8"))
    rows = {(row["benchmark"], row["name"]): row for row in results["rows"]}
    assert block(benchmarks.README) == benchmarks.sentences(rows, results["machine"]).strip()
    assert block(benchmarks.PAGE) == benchmarks.table(results).strip()
