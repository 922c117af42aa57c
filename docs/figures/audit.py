"""Draw what audits found against what is claimed, and write their table.

``python docs/figures/audit.py FOUND.json …``: each file is what ``dpsketch audit … --json`` printed. Where two have the
same pair, the later one counts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

DOCS = Path(__file__).parents[1]
PAGE, PICTURE = DOCS / "explanation" / "audit.md", DOCS / "figures" / "audit.png"
BEGIN, END = "<!-- table: written by docs/figures/audit.py -->\n", "<!-- end of table -->\n"
METHODS = {"law": ("#1f77b4", "exact law"), "restated": ("#2a9d5c", "restated"), "sampled": ("#8a8a8a", "sampled")}
PAIRS = ("worst", "first", "null", "colliding", "clipped", "alone", "any")
ENDS = ("record-add", "record-replace", "user-add", "user-replace")

Found = dict[str, Any]


def row_of(found: Found) -> str:
    """Return the row of the table that a finding belongs to: its name without the pair of neighbours."""
    name: str = found["name"]
    begin, _, pair = name.rpartition("-")
    return begin if name.startswith("table-") and pair in PAIRS else name


def kind_of(row: str) -> str:
    """Return the kind of a row: its name without unit and relation."""
    for end in ENDS:
        row = row.removesuffix(f"-{end}")
    return row.removeprefix("table-")


def ratio(found: Found) -> float:
    """Return the audited ε as a share of the claimed one; beyond the picture where it is infinite."""
    audited = found["audited_epsilon"]
    return 1.5 if audited is None else min(1.5, audited / found["claimed_epsilon"])


def table_of(findings: list[Found]) -> str:
    """Return the table in Markdown: the pair of each row that tells most."""
    lines = [
        "| what is released | claimed ε | at δ | audited ε ≥ | on the pair | method | power | releases |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows: dict[str, list[Found]] = {}
    for found in findings:
        rows.setdefault(row_of(found), []).append(found)
    for row, pairs in rows.items():
        best = max(pairs, key=ratio)
        power = max(found["power"] for found in pairs)
        audited = "∞" if best["audited_epsilon"] is None else f"{best['audited_epsilon']:.3f}"
        verdict = "" if best["verdict"] == "holds" else " **violated**"
        stated = f"{best['claimed_epsilon']:.4g} | {best['delta']:.3g} | {audited}{verdict}"
        words = f"{stated} | {best['neighbours']} | {METHODS[best['method']][1]}"
        caught = "–" if not best["shipped_as_private"] else f"×{power:.2f}"
        lines.append(f"| {row.removeprefix('table-')} | {words} | {caught} | {best['trials']:,} |")
    return "\n".join(lines) + "\n"


def picture_of(findings: list[Found]) -> Figure:
    """Draw every pair's audited ε as a share of the claimed one, a line for each kind."""
    kinds = list(dict.fromkeys(kind_of(row_of(found)) for found in findings))
    figure = Figure(figsize=(7.5, 1.4 + 0.19 * len(kinds)), layout="constrained", dpi=110)
    axes = figure.subplots()
    places = {kind: len(kinds) - 1 - i for i, kind in enumerate(kinds)}
    for method, (colour, label) in METHODS.items():
        chosen = [found for found in findings if found["method"] == method]
        colours = ["#d1495b" if found["verdict"] == "violated" else colour for found in chosen]
        heights = [places[kind_of(row_of(found))] for found in chosen]
        axes.scatter([ratio(found) for found in chosen], heights, s=13, c=colours, alpha=0.75, linewidths=0, zorder=3)
        axes.scatter([], [], s=13, c=colour, label=label)
    axes.scatter([], [], s=13, c="#d1495b", label="refuted: kept as published")
    axes.axvline(1, color="#333333", linewidth=1, label="the claim")
    axes.axvline(0.8, color="#333333", linewidth=0.7, linestyle=":")
    axes.set_yticks(np.arange(len(kinds))[::-1], kinds, fontsize=7)
    axes.set_ylim(-0.7, len(kinds) - 0.3)
    axes.set_xlim(-0.02, 1.55)
    axes.set_xlabel("audited ε, as a share of the claimed ε (1.5 and beyond at the edge)", fontsize=8)
    axes.grid(axis="y", color="#eeeeee", zorder=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=7, ncols=5, loc="lower center", bbox_to_anchor=(0.4, 1.0))
    return figure


def main(files: list[str]) -> None:
    """Join the files, and write picture and table."""
    joined: dict[str, Found] = {}
    for file in files:
        joined |= {found["name"]: found for found in json.loads(Path(file).read_text())["mechanisms"]}
    findings = list(joined.values())
    picture_of(findings).savefig(PICTURE)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table_of(findings)}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main(sys.argv[1:])
