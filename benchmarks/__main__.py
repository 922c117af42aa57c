"""Run every benchmark, print one table of ratios, and keep it as JSON and pictures: ``python -m benchmarks [NAME…]``.

Everything runs on one core unless a row says otherwise. A row is a dictionary: ``name``, ``ours``, ``theirs``,
``ratio`` (above 1 is in our favour; None, like ``theirs``, where nobody else does it), ``unit``, and where a goal was
set, ``reach``: the least ratio that meets it.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results"
NOT_BENCHMARKS = {"__init__", "__main__", "decoding", "drawing", "guarded_fit", "histogram_rivals", "peers"}


def main(names: list[str]) -> None:
    """Run the named benchmarks (all of them by default); the others keep the rows of their last run."""
    os.environ.setdefault("DPSKETCH_THREADS", "1")
    known = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NOT_BENCHMARKS)
    stored = RESULTS / "latest.json"
    rows: list[dict[str, Any]] = json.loads(stored.read_text())["rows"] if names and stored.exists() else []
    for name in names or known:
        print(f"{name} …", file=sys.stderr, flush=True)
        rows = [row for row in rows if row["benchmark"] != name]
        for row in importlib.import_module(f"benchmarks.{name}").run():
            rows.append({"benchmark": name, **row})
            print(line(rows[-1]), flush=True)
    RESULTS.mkdir(exist_ok=True)
    machine = {
        "python": platform.python_version(),
        "processor": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
    }
    stored.write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")
    from benchmarks.drawing import draw_ratios

    draw_ratios([row for row in rows if row["ratio"] is not None], RESULTS / "ratios.png")
    short = [row for row in rows if "reach" in row and row["ratio"] < row["reach"]]
    print(f"\n{len(rows)} rows; {sum('reach' in row for row in rows)} have a goal, {len(short)} fall short of it.")
    for row in short:
        print(line(row))


def line(row: dict[str, Any]) -> str:
    """Return one row of the table."""
    reach = f"(goal {row['reach']:g}×{'' if row['ratio'] >= row['reach'] else ', SHORT'})" if "reach" in row else ""
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}×"
    theirs = "" if row["theirs"] is None else f"{row['theirs']:.4g}"
    figures = f"{row['ours']:>12.4g} {theirs:>12} {row['unit']:16} {ratio:>10} {reach}"
    return f"{row['benchmark']:20} {row['name']:62} {figures}"


if __name__ == "__main__":
    main(sys.argv[1:])
