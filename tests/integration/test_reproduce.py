"""Every paper, in the quick form, by the command that a reader would type."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpsketch.cli import app as command_line
from dpsketch.reproduce import find_papers, papers
from dpsketch.reproduce.papers import PAPERS


@pytest.mark.parametrize("paper", PAPERS)
def test_a_paper_is_reproduced(paper: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(command_line.app, ["reproduce", paper, "--quick", "-o", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[paper]["failures"] == []
    report = (tmp_path / paper / "report.md").read_text(encoding="utf-8")
    pictures = list((tmp_path / paper).glob("*.png"))
    assert pictures
    assert all(picture.name in report for picture in pictures)


def test_a_number_outside_its_limits_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: with one limit that cannot hold, the same command exits 1 and names the number."""
    shutil.copytree(find_papers() / "alp", tmp_path / "papers" / "alp")
    path = tmp_path / "papers" / "alp" / "expected.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["numbers"][document["headline_number"]] |= {"reproduced": [-2, -1], "quick": {}}
    path.write_text(json.dumps(document), encoding="utf-8")
    monkeypatch.setattr(papers, "find_papers", lambda: tmp_path / "papers")
    done = CliRunner().invoke(command_line.app, ["reproduce", "alp", "--quick", "-o", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert document["headline_number"] in done.stderr


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
