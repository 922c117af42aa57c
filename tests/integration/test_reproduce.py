"""Every paper, in its quick form, by the command that a reader types; the full suite computes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpsketch import reproduce as papers
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


@pytest.mark.parametrize(("limits", "code"), [([4, 4], 0), ([-2, -1], 1)])
def test_a_number_outside_its_limits_ends_the_command(
    limits: list[int], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin, of a paper with one number: with a limit that cannot hold, the command exits 1 and names the number."""
    home = tmp_path / "papers" / "alp"
    home.mkdir(parents=True)
    (home / "README.md").write_text("# One number\n", encoding="utf-8")
    (home / "reproduce.py").write_text("def reproduce(run):\n    run.number('four', 4.0)\n", encoding="utf-8")
    number = {"what": "half of eight", "paper": 4, "reproduced": limits}
    document = {"title": "A", "headline": "B", "headline_number": "four", "numbers": {"four": number}}
    (home / "expected.json").write_text(json.dumps(document), encoding="utf-8")
    monkeypatch.setattr(papers, "find_papers", lambda: tmp_path / "papers")
    done = CliRunner().invoke(app, ["reproduce", "alp", "--quick", "-o", str(tmp_path / "out")])
    assert done.exit_code == code
    assert ("four" in done.stderr) == bool(code)


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
