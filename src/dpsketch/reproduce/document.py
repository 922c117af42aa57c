"""Reports of reproductions: Markdown, and one HTML page that needs no other file."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path

from dpsketch.reproduce.papers import Reproduction
from dpsketch.reproduce.run import markdown_table

__all__ = ["summary", "write_index", "write_report"]

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { border: 1px solid #bbb; padding: .3rem .6rem; text-align: left; vertical-align: top; }
th { background: #eef2f6; }
img { max-width: 100%; border: 1px solid #ddd; }
code { background: #f2f2f2; padding: 0 .2rem; }
"""


def write_report(found: Reproduction, folder: Path) -> None:
    """Write ``report.md``, ``report.html`` and ``numbers.json`` beside the figures."""
    lines = [found.introduction]
    if found.quick:
        lines.append("*This is the quick form: fewer repetitions, smaller data, wider limits.*")
    lines += ["## Numbers", _numbers(found), found.body]
    if found.left_out:
        lines += ["## Left out", "\n".join(f"- {line}" for line in found.left_out)]
    if found.failures:
        lines += ["## Outside its limits", "\n".join(f"- {line}" for line in found.failures)]
    lines.append(f"*Made by `dpsketch reproduce {found.paper}{' --quick' if found.quick else ''}`.*")
    _write(folder, "report", found.title, "\n\n".join(lines))
    numbers = {
        name: {"paper": one.number.paper, "reproduced": one.reproduced, "ours": one.ours}
        for name, one in found.outcomes.items()
    }
    document = {"paper": found.paper, "quick": found.quick, "numbers": numbers, "failures": found.failures}
    (folder / "numbers.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def write_index(found: Sequence[Reproduction], folder: Path) -> None:
    """Write ``index.md`` and ``index.html``: one line a paper."""
    lines = [
        "# The five papers, reproduced",
        "Each report has the paper's figures and tables, made again with the same axes and series, ours added. "
        "Every number is checked against limits that lie beside the script. `dpsketch reproduce all` makes them.",
        summary(found, "{paper}/report.md"),
    ]
    _write(folder, "index", "The five papers, reproduced", "\n\n".join(lines))


def summary(found: Sequence[Reproduction], link: str) -> str:
    """Return one table: a paper's headline, reproduced, and ours at the same budget."""
    rows = []
    for one in found:
        outcome = one.headline_outcome
        rows.append(
            [
                f"[{one.paper}]({link.format(paper=one.paper)})",
                one.headline,
                "–" if outcome is None else outcome.number.what,
                None if outcome is None else outcome.number.paper,
                None if outcome is None else outcome.reproduced,
                None if outcome is None else outcome.ours,
            ]
        )
    return markdown_table(["paper", "headline", "number", "printed", "reproduced", "ours at the same budget"], rows)


def _numbers(found: Reproduction) -> str:
    rows = [
        [
            one.number.what,
            one.number.paper,
            one.reproduced,
            one.ours,
            "; ".join(
                f"{side} {limits}"
                for side, limits in (("reproduced", one.number.reproduced), ("ours", one.number.ours))
                if limits is not None
            ),
        ]
        for one in found.outcomes.values()
    ]
    return markdown_table(["number", "paper", "reproduced", "dpsketch default", "limits"], rows)


def _write(folder: Path, name: str, title: str, markdown: str) -> None:
    from markdown_it import MarkdownIt

    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(markdown + "\n", encoding="utf-8")
    body = MarkdownIt("commonmark").enable("table").render(markdown)
    body = re.sub(r'src="([^":]+\.png)"', lambda match: f'src="{_inline(folder / match[1])}"', body)
    body = re.sub(r'href="([^":]+)\.md"', r'href="\1.html"', body)
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n{body}</body></html>\n"
    )
    (folder / f"{name}.html").write_text(page, encoding="utf-8")


def _inline(picture: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode("ascii")
