"""What a paper's script sees: the size of the run, the data, and where its findings go."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsketch import plots
from dpsketch.errors import InvalidInput
from dpsketch.reproduce.expected import Expected, Reproduced, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Run"]


class Run:
    """One run of a paper's script.

    Attributes
    ----------
    quick : bool
        Whether the form of a minute is asked for, instead of the full one.
    outcomes : dict
        The numbers recorded so far.
    left_out : list of str
        What could not be done, and why.
    """

    def __init__(
        self, expected: Expected, folder: Path, *, quick: bool, progress: Callable[[str], None] = lambda text: None
    ) -> None:
        self.quick = quick
        self.outcomes: dict[str, Reproduced] = {}
        self.left_out: list[str] = []
        self._expected = expected
        self._folder = folder
        self._progress = progress
        self._parts: list[str] = []

    def section(self, title: str, *paragraphs: str) -> None:
        """Begin a section of the report, usually one figure or table of the paper."""
        self._progress(title)
        self._parts.append("\n\n".join([f"## {title}", *paragraphs]))

    def text(self, *paragraphs: str) -> None:
        """Add Markdown paragraphs."""
        self._parts.extend(paragraphs)

    def figure(self, name: str, figure: Figure, caption: str) -> None:
        """Save a figure as PNG and show it in the report."""
        plots.save(figure, self._folder / f"{name}.png")
        alternative = caption.translate({ord("["): "(", ord("]"): ")"})
        self._parts.append(f"![{alternative}]({name}.png)\n\n*{caption}*")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Add a table; numbers are shown with four significant digits, whole numbers whole."""
        self._parts.append(markdown_table(columns, rows))

    def number(self, name: str, reproduced: float | None, *, ours: float | None = None) -> None:
        """Record a number that ``expected.json`` names: the paper's method reproduced, and ours beside it."""
        if name not in self._expected.numbers or name in self.outcomes:
            raise InvalidInput(f"{name!r} is not a number of expected.json, or was recorded before.")
        values = (None if value is None else float(value) for value in (reproduced, ours))
        self.outcomes[name] = Reproduced(name, self._expected.numbers[name], *values)

    def data(self, *paths: str) -> Path | None:
        """Return the first of some files that the data folder ($DPSKETCH_DATA) holds; where it has none, report it."""
        folder = os.environ.get("DPSKETCH_DATA")
        for path in paths:
            if folder is not None and (Path(folder) / path).is_file():
                return Path(folder) / path
        why = "the file is not there; $DPSKETCH_DATA names the folder of real data"
        self.leave_out(f"what needs {' or '.join(paths)}", why)
        return None

    def leave_out(self, what: str, why: str) -> None:
        """Say what the run does not do, and why."""
        line = f"{what}: {why}"
        if line not in self.left_out:
            self.left_out.append(line)

    def missing(self) -> list[str]:
        """Return the expected numbers that this run owed and did not record."""
        return [
            name
            for name, number in self._expected.numbers.items()
            if name not in self.outcomes
            and not (self.quick and number.full_only)
            and not any(need in line for need in number.needs for line in self.left_out)
        ]

    @property
    def body(self) -> str:
        """The report's sections in Markdown."""
        return "\n\n".join(self._parts)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table in Markdown."""
    lines = [list(columns), ["---"] * len(columns), *([_cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: Any) -> str:
    match value:
        case None:
            return "–"
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case _:
            return shown(float(value))
