"""The page of benchmarks: made of the results alone, readable, and true to what was committed."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page
from benchmarks.__main__ import STORED
from benchmarks.machine import machine

runner: Any = importlib.import_module("benchmarks.__main__")
RESULTS = json.loads(STORED.read_text(encoding="utf-8"))
ROWS = {(row["benchmark"], row["name"]): row for row in RESULTS["rows"]}


def block(path: Path) -> str:
    return path.read_text(encoding="utf-8").split(page.BEGIN)[1].split(page.END)[0].strip()


def test_readme_and_page_say_what_the_results_say() -> None:
    assert block(page.README) == page.sentences(ROWS, RESULTS["machine"]).strip()
    assert block(page.PAGE) == page.table(RESULTS).strip()


def test_another_result_changes_every_output(tmp_path: Path) -> None:
    """The files follow the results: what is written from others differs, and a goal that is missed is bold."""
    rows = [{**row, "ratio": row["ratio"] and 1e-3 * row["ratio"], "ours": 3 * row["ours"]} for row in RESULTS["rows"]]
    series = {"what": "records, counts", "label": "records", "values": [1, 10, 100], "seconds": [1.0, 2.0, 20.0]}
    rows[0]["series"] = series
    for path in (page.PAGE, page.README):
        (tmp_path / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    here = RESULTS["machine"] | {"processor": "an abacus"}
    page.write({"machine": here, "rows": rows}, tmp_path / page.PAGE.name, tmp_path / "README.md", tmp_path)
    for path in (page.PAGE, page.README):
        written = block(tmp_path / path.name)
        assert written != block(path)
        assert "an abacus" in written
    assert re.search(r"\*\*0\.\d\d×\*\*", block(tmp_path / page.PAGE.name))
    for name in ("instead", "growth", "bounds"):
        assert (tmp_path / f"benchmarks-{name}.png").stat().st_size > 5_000


def test_a_run_that_was_interrupted_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One benchmark fails, a later one is interrupted: what had been measured stays, and the rest is measured.

    Of former runs the rows of what is run by name are kept, and say that they are.
    """
    stored = tmp_path / "latest.json"
    turn = {"first": 1.0}
    stopped: dict[str, type[BaseException]] = {"second": RuntimeError, "fourth": KeyboardInterrupt}

    def measured(name: str) -> list[dict[str, Any]]:
        if name in stopped:
            raise stopped.pop(name)
        row = {"benchmark": name, "name": "a row", "ours": 1.0, "theirs": 1.0, "ratio": turn["first"], "unit": "s"}
        return [row]

    def held() -> dict[str, Any]:
        results = json.loads(stored.read_text())
        return results | {"rows": {row["benchmark"]: row["ratio"] for row in results["rows"]}}

    for attribute, value in (("STORED", stored), ("rows_of", measured), ("BY_NAME", ("sixth",))):
        monkeypatch.setattr(runner, attribute, value)
    names = ["first", "second", "third", "fourth", "fifth"]
    former = [row for each in ("sixth", "third") for row in measured(each)]
    stored.write_text(json.dumps({"machine": machine() | {"processor": "an abacus"}, "apart": {}, "rows": former}))
    with pytest.raises(KeyboardInterrupt):
        runner.measure(names, whole=True)
    assert held()["rows"] == {"sixth": 1.0, "first": 1.0, "third": 1.0}
    assert "an abacus" in held()["apart"].pop("sixth")
    assert held()["unfinished"] == ["second", "fourth", "fifth"]
    told = page.table(json.loads(stored.read_text()))
    assert "It did not come to its end: second, fourth, fifth are missing." in told
    turn["first"] = 2.0
    assert runner.measure(["fourth"], whole=False) == []
    assert list(held()["apart"]) == ["sixth", "fourth"]
    turn["first"] = 3.0
    assert runner.resume() == []
    again = {"second": 3.0, "fourth": 3.0, "fifth": 3.0}
    assert held()["rows"] == {"sixth": 1.0, "first": 1.0, "third": 1.0} | again
    assert list(held()["apart"]) == ["sixth"]
    assert set(held()["seconds"]) == set(names)
    assert "It was interrupted and gone on with on" in page.table(json.loads(stored.read_text()))
    with pytest.raises(SystemExit, match="nothing to resume"):
        runner.resume()
