"""Run every benchmark and print one table of ratios: ``python -m benchmarks [NAME…]``."""

from __future__ import annotations

import importlib
import json
import platform
import sys
from pathlib import Path

HERE = Path(__file__).parent
NOT_BENCHMARKS = {"__init__", "__main__", "peers"}


def main(names: list[str]) -> None:
    """Run the named benchmarks (all of them by default), print their ratios and keep them as JSON."""
    known = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in NOT_BENCHMARKS)
    rows = []
    for name in names or known:
        print(f"{name} …", file=sys.stderr, flush=True)
        for row in importlib.import_module(f"benchmarks.{name}").run():
            rows.append({"benchmark": name, **row})
            figures = f"{row['ours']:>14.4g} {row['theirs']:>14.4g} {row['unit']:12} {row['ratio']:>8.2f}×"
            print(f"{name:20} {row['name']:48} {figures}", flush=True)
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    machine = {"python": platform.python_version(), "processor": platform.machine(), "system": platform.system()}
    (results / "latest.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
