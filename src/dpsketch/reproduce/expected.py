"""What is expected of a reproduction: a paper's numbers and the limits that ours must keep."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsketch.errors import InvalidInput

__all__ = ["Expected", "Number", "Reproduced", "Tolerance", "shown"]


def shown(value: float) -> str:
    """Return a number as reports print it: with four significant digits, but large whole numbers whole.

    Examples
    --------
    >>> shown(888317.0), shown(1234.5), shown(0.123456)
    ('888,317', '1,234', '0.1235')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 and float(value).is_integer() else f"{value:,.4g}"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The closed interval in which a number must lie."""

    low: float
    high: float

    def hold(self, value: float) -> bool:
        """Say whether a number lies inside; what is not a number never does."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{shown(self.low)} to {shown(self.high)}"


@dataclass(frozen=True, slots=True)
class Number:
    """One number of a paper.

    Attributes
    ----------
    what : str
        What it measures, in words, with its unit.
    paper : float or None
        What the paper prints, where it prints it as a number.
    reproduced, ours : Limits or None
        Where the paper's method, reproduced, must lie, and where the library's default at the same budget must.
    needs : tuple of str
        Files of the data folder without which it cannot be measured.
    full_only : bool
        Whether the quick form leaves it out.
    """

    what: str
    paper: float | None
    reproduced: Tolerance | None
    ours: Tolerance | None
    needs: tuple[str, ...] = ()
    full_only: bool = False


@dataclass(frozen=True, slots=True)
class Reproduced:
    """One number, measured: the paper's method reproduced, and the library's default at the same budget."""

    name: str
    number: Number
    reproduced: float | None
    ours: float | None

    @property
    def complaints(self) -> list[str]:
        """What is outside its limits, in words."""
        found = []
        for side, value, limits in (
            ("reproduced", self.reproduced, self.number.reproduced),
            ("dpsketch", self.ours, self.number.ours),
        ):
            if limits is not None and not limits.hold(math.nan if value is None else value):
                found.append(f"{self.name} ({side}): {'nothing' if value is None else shown(value)}, expected {limits}")
        return found


@dataclass(frozen=True, slots=True)
class Expected:
    """The content of a paper's ``expected.json``, for one form of the run.

    Attributes
    ----------
    title : str
        The paper: authors, title, year.
    headline : str
        Its main claim, in one sentence.
    headline_number : str
        The name of the number that stands for it.
    numbers : dict
        Every number, by name.
    """

    title: str
    headline: str
    headline_number: str
    numbers: dict[str, Number]

    @classmethod
    def read(cls, path: Path, *, quick: bool) -> Expected:
        """Read ``expected.json``. Limits under ``quick`` replace the others in the quick form."""
        document = json.loads(path.read_text(encoding="utf-8"))
        numbers = {name: _number(entry, quick=quick) for name, entry in document["numbers"].items()}
        if document["headline_number"] not in numbers:
            raise InvalidInput(f"{path.name} names a headline number that it does not list.")
        return cls(document["title"], document["headline"], document["headline_number"], numbers)


def _number(entry: dict[str, Any], *, quick: bool) -> Number:
    limits = entry | (entry.get("quick", {}) if quick else {})
    return Number(
        what=entry["what"],
        paper=entry.get("paper"),
        reproduced=_limits(limits.get("reproduced")),
        ours=_limits(limits.get("ours")),
        needs=tuple(entry.get("needs", ())),
        full_only=bool(entry.get("full_only", False)),
    )


def _limits(pair: list[float] | None) -> Tolerance | None:
    return None if pair is None else Tolerance(float(pair[0]), float(pair[1]))
