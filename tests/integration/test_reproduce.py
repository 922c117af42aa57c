"""Every paper, in its quick form, by the command that a reader types; the full suite computes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpsketch.cli.app import app
from dpsketch.reproduce import PAPERS


@pytest.mark.full
@pytest.mark.parametrize("paper", PAPERS)
def test_a_paper_is_reproduced(paper: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["reproduce", paper, "--quick", "-o", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[paper]["failures"] == []
    report = (tmp_path / paper / "report.md").read_text(encoding="utf-8")
    pictures = list((tmp_path / paper).glob("*.png"))
    assert pictures
    assert all(picture.name in report for picture in pictures)


def test_the_readme_says_what_the_committed_reports_say() -> None:
    root = Path(__file__).parents[2]
    readme = (root / "README.md").read_text(encoding="utf-8")
    for paper in PAPERS:
        headline = json.loads((root / "papers" / paper / "expected.json").read_text(encoding="utf-8"))[
            "headline_number"
        ]
        report = json.loads((root / "docs" / "papers" / paper / "numbers.json").read_text(encoding="utf-8"))
        assert not report["quick"]
        assert report["failures"] == []
        (row,) = [line for line in readme.splitlines() if f"docs/papers/{paper}/report.md" in line]
        shown = ["–" if value is None else f"{value:.3g}" for value in report["numbers"][headline].values()]
        assert [cell.strip() for cell in row.split("|")[-4:-1]] == shown
