"""Draw what audits found against what is claimed, and write their table.

``python docs/figures/audit.py FOUND.json …``: each file is what ``dpsketch audit … --json`` printed. A row that it has
takes the place of the same row in ``audit.json``, where what was found last of every row is kept.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from dpsketch.audit import known_mechanisms
from dpsketch.audit.grid import KINDS
from dpsketch.audit.sampled import BY_LAW

DOCS = Path(__file__).parents[1]
PAGE, PICTURE = DOCS / "explanation" / "audit.md", DOCS / "figures" / "audit.png"
FOUND = DOCS / "figures" / "audit.json"
BEGIN, END = "<!-- table: written by docs/figures/audit.py -->\n", "<!-- end of table -->\n"
# A fifth less noise; and what so few releases leave open below it.
FIFTH, NEAR = 0.8, 0.75
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


def rows_of(findings: list[Found]) -> dict[str, list[Found]]:
    """Return what was found of each row."""
    rows: dict[str, list[Found]] = {}
    for found in findings:
        rows.setdefault(row_of(found), []).append(found)
    return rows


def powers_of(pairs: list[Found]) -> tuple[float, float]:
    """Return what share of the noise the best pair of a row catches, and its drawn noise by itself."""
    restated = [found["power"] for found in pairs if found["method"] == "restated"]
    others = [found["power"] for found in pairs if found["method"] != "restated"]
    return max(others, default=0.0), max(restated, default=0.0)


def caught_by(row: str, pairs: list[Found]) -> str:
    """Say what catches a fifth less noise."""
    by_pair, drawn = powers_of(pairs)
    if by_pair >= FIFTH:
        return f"the pair, ×{by_pair:.2f}"
    if drawn >= FIFTH:
        return f"drawn noise, ×{drawn:.2f}"
    if row in BY_LAW:
        return f"{BY_LAW[row].removeprefix('table-')}; alone ×{by_pair:.2f}"
    return f"×{max(by_pair, drawn):.2f}"


def table_of(findings: list[Found]) -> str:
    """Return the table in Markdown: the pair of each row that tells most."""
    lines = [
        "| what is released | claimed ε | at δ | audited ε ≥ | on the pair | method | ×0.8 is caught by | releases |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row, pairs in rows_of(findings).items():
        best = max([found for found in pairs if found["method"] != "restated"] or pairs, key=ratio)
        audited = "∞" if best["audited_epsilon"] is None else f"{best['audited_epsilon']:.3f}"
        verdict = "" if best["verdict"] == "holds" else " **violated**"
        stated = f"{best['claimed_epsilon']:.4g} | {best['delta']:.3g} | {audited}{verdict}"
        words = f"{stated} | {best['neighbours']} | {METHODS[best['method']][1]}"
        caught = "–" if not best["shipped_as_private"] else caught_by(row, pairs)
        lines.append(f"| {row.removeprefix('table-')} | {words} | {caught} | {best['trials']:,} |")
    return "\n".join(lines) + "\n"


def reasons_of(findings: list[Found]) -> str:
    """Return, kind by kind, why no pair comes near a bound, and which units and pairs cannot exist."""
    below: dict[str, list[str]] = {}
    for row, pairs in rows_of(findings).items():
        by_pair, drawn = powers_of(pairs)
        if row.startswith("table-") and 0 < by_pair < NEAR and drawn >= FIFTH:
            below.setdefault(kind_of(row), []).append(f"{row.removeprefix('table-')} ×{by_pair:.2f}")
    lines = [
        "Where no pair that was found comes near the bound (what is missing between ×0.75 and ×0.8 is the width of an",
        "interval, of so few releases):",
        "",
    ]
    for kind, rows in below.items():
        known = next((KINDS[name].loose for name in KINDS if kind in (name, f"{name}-gaussian", f"{name}-laplace")), "")
        lines.append(f"- {', '.join(rows)}{': ' + known if known else ''}.")
    lines += ["", "What cannot exist:", ""]
    for name, kind in KINDS.items():
        said = [f"{pair}: {why}" for pair, why in kind.absent.items()]
        said += [f"other units or relations: {kind.refused}"] if kind.refused else []
        lines += [f"- {name}: {'; '.join(said)}."] if said else []
    lines += [
        "- local protocols: first: a report is of one person alone; null and clipped, where a person holds one item:",
        "  there is always one, and no more; other units or relations: what a person holds may be anything else.",
        "- histogram-weighted, histogram-rounds: records: weights are spread over the keys of a user.",
    ]
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
    """Take new rows in, and write picture and table."""
    rows = rows_of(json.loads(FOUND.read_text())["mechanisms"]) if FOUND.exists() else {}
    for file in files:
        rows |= rows_of(json.loads(Path(file).read_text())["mechanisms"])
    known = known_mechanisms()
    findings = [found for row, pairs in rows.items() if row in known for found in pairs]
    FOUND.write_text(json.dumps({"mechanisms": findings}, indent=0, ensure_ascii=False) + "\n")
    picture_of(findings).savefig(PICTURE)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    written = f"{table_of(findings)}\n{reasons_of(findings)}"
    PAGE.write_text(f"{before}{BEGIN}\n{written}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main(sys.argv[1:])
