"""Reproductions: numbers are held to their limits, and the report says everything that was found."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from click.testing import CliRunner

from dpsketch.cli.app import app
from dpsketch.reproduce import PAPERS, find_papers, reproduce, write_index, write_report

SCRIPT = """
    import dpsketch as dps
    from dpsketch import plots
    from .neighbour import VALUE

    def reproduce(run):
        run.section("Figure 1", "Some words.")
        figure = plots.new_figure(2, 1)
        figure.subplots().plot([1, 2], [1, 2])
        run.figure("figure-1", figure, "A line")
        run.table(["x", "y"], [["a", 1.23456], ["b", None]])
        run.number("value", VALUE, ours=2.0)
        sketch = dps.CountSketch(rows=3, width=8, unit=dps.per_record())
        run.number("noise", sketch.release(epsilon=1.0, delta=1e-6).table.sum())
        if run.data("sets/nowhere.dat"):
            run.number("real", 1.0)
        if not run.quick:
            run.number("long", 1.0)
"""


def expected(change: dict[str, Any] | None = None) -> dict[str, Any]:
    numbers: dict[str, Any] = {
        "value": {"what": "a value", "paper": 5, "reproduced": [4, 6], "ours": [1, 3], "quick": {"ours": [2, 2]}},
        "noise": {"what": "noise", "reproduced": [-1e9, 1e9]},
        "real": {"what": "from real data", "reproduced": [1, 1], "needs": ["sets/nowhere.dat"]},
        "long": {"what": "in the full form", "reproduced": [1, 1], "full_only": True},
    }
    numbers["value"] |= change or {}
    return {"title": "A paper", "headline": "It works.", "headline_number": "value", "numbers": numbers}


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    home = tmp_path / "papers" / "alp"
    home.mkdir(parents=True)
    (home / "README.md").write_text("# A paper\n\nWhat it claims.\n")
    (home / "reproduce.py").write_text(dedent(SCRIPT))
    (home / "neighbour.py").write_text("VALUE = 5.0\n")
    (home / "expected.json").write_text(json.dumps(expected()))
    return tmp_path / "papers"


def run(papers: Path, out: Path) -> Any:
    return reproduce("alp", out, quick=True, papers=papers)


def test_what_lies_inside_its_limits_passes_repeats_and_is_reported(papers: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found, again = run(papers, out / "alp"), run(papers, tmp_path / "again")
    assert found.failures == []
    assert any("sets/nowhere.dat" in line for line in found.left_out)
    assert found.outcomes["noise"].reproduced == again.outcomes["noise"].reproduced  # to the last digit
    write_report(found, out / "alp")
    write_index([found], out)
    markdown = (out / "alp" / "report.md").read_text(encoding="utf-8")
    assert all(words in markdown for words in ("What it claims.", "| a value | 5 | 5 | 2 |", "quick form"))
    page = (out / "alp" / "report.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in page
    assert 'src="figure-1.png"' not in page
    assert "alp/report.html" in (out / "index.html").read_text(encoding="utf-8")
    assert json.loads((out / "alp" / "numbers.json").read_text())["numbers"]["value"]["ours"] == 2.0


def test_what_lies_outside_is_named(papers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsketch.reproduce.find_papers", lambda: papers)
    for change, complaint in (
        ({"reproduced": [5.001, 6]}, "value (reproduced): 5, expected 5.001 to 6"),
        ({"quick": {"ours": [2.1, 3]}}, "value (dpsketch): 2, expected 2.1 to 3"),
        ({"paper": 1, "reproduced": [float("nan"), 6]}, "value (reproduced)"),
    ):
        (papers / "alp" / "expected.json").write_text(json.dumps(expected(change)))
        (failure,) = run(papers, tmp_path / "out").failures
        assert complaint in failure
        done = CliRunner().invoke(app, ["reproduce", "alp", "--quick", "-o", str(tmp_path / "out")])
        assert (done.exit_code, complaint in done.stderr) == (1, True)


def test_every_paper_has_its_parts_and_its_script_is_short() -> None:
    for name in PAPERS:
        home = find_papers() / name
        assert (home / "README.md").is_file()
        assert len((home / "reproduce.py").read_text(encoding="utf-8").splitlines()) <= 150
        document = json.loads((home / "expected.json").read_text(encoding="utf-8"))
        assert document["headline_number"] in document["numbers"]
        assert all("reproduced" in number or "ours" in number for number in document["numbers"].values())
