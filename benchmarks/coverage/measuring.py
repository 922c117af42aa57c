"""What a case is, and how its answers are counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from dpsketch import noise

NOMINAL = 95.0
LEAST = 94.0
# A row holds if it reaches the least; in one of fewer releases chance may take three standard errors of theirs.
ALLOWED = 3.0
# So many releases of one statement: their standard error is half a percent.
RELEASES = 2000
# So many releases of 2,000 keys each.
SEEDS = 20
INTERVALS = SEEDS * 2000
# The quick form makes one in so many releases.
QUICK = 100

BUDGETS: dict[str, dict[str, float]] = {
    "δ > 0": {"epsilon": 1.0, "delta": 1e-6},
    "δ = 0": {"epsilon": 1.0, "delta": 0.0},
}


@dataclass(frozen=True)
class Answer:
    """Intervals beside the truth: arrays of one length.

    Attributes
    ----------
    name : str
        What was asked.
    truth, value, low, high : numpy.ndarray
        The truth, the estimates and the ends of their intervals. Where the truth is a stretch, as at a tie of
        quantiles, ``truth`` has two columns, and both have to be covered.
    joint : bool
        Whether the intervals are stated to hold all at once.
    """

    name: str
    truth: Any
    value: Any
    low: Any
    high: Any
    joint: bool = False

    @classmethod
    def of(cls, name: str, truth: Any, found: Any, joint: bool = False) -> Answer:
        """Take the intervals of an ``Estimate`` or ``Estimates``, or of a release that is one number."""
        return cls(name, truth, found.value, found.low, found.high, joint)


@dataclass(frozen=True)
class Case:
    """One kind, one shape of data, one budget: ``trial(seed)`` makes a release and yields its answers."""

    kind: str
    setting: str
    budget: str
    releases: int
    trial: Callable[[int], Iterator[Answer]]

    @property
    def name(self) -> str:
        """What it is called: no two cases have one name."""
        return f"{self.kind}, {self.setting}, {self.budget}"


@dataclass
class Row:
    """One line of the table."""

    kind: str
    answer: str
    setting: str
    budget: str
    covered: float
    waste: float
    limit: float
    releases: int
    intervals: int
    nominal: float = NOMINAL

    @property
    def short(self) -> bool:
        """Whether it covers less than it has to."""
        return self.covered < self.limit

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON-ready values."""
        return asdict(self) | {"waste": self.waste if math.isfinite(self.waste) else str(self.waste)}

    @classmethod
    def from_json(cls, written: dict[str, Any]) -> Row:
        """Return the row that :meth:`to_json` wrote."""
        return cls(**written | {"waste": float(written["waste"])})


@dataclass
class _Count:
    """What the trials of one answer add up to."""

    hits: list[float] = field(default_factory=list)
    intervals: int = 0
    widths: float = 0.0
    errors: list[np.ndarray] = field(default_factory=list)
    joint: bool = False

    def add(self, answer: Answer, shrink: float) -> None:
        value = np.atleast_1d(np.asarray(answer.value, float))
        if len(value) == 0:
            return
        truth = np.asarray(answer.truth, float).reshape(len(value), -1)
        low, high = (np.atleast_1d(np.asarray(end, float)) for end in (answer.low, answer.high))
        low, high = value - shrink * (value - low), value + shrink * (high - value)
        # Ends are often whole numbers times a grid: the last bit is not what is counted.
        slack = 1e-9 * (1 + np.abs(truth).max(axis=1))
        covered = (low - slack <= truth.min(axis=1)) & (truth.max(axis=1) <= high + slack)
        errors = np.abs(value[:, np.newaxis] - truth).min(axis=1)
        self.joint = answer.joint
        self.hits.append(float(covered.all() if answer.joint else covered.mean()))
        self.intervals += len(value)
        self.widths += float(np.sum(high - low)) / 2
        self.errors.append(np.array([errors.max()]) if answer.joint else errors)

    def row(self, case: Case, name: str, *, quick: bool) -> Row:
        """Return the line of the table."""
        enough = not quick and (case.releases >= RELEASES or self.intervals >= INTERVALS)
        reach = float(np.quantile(np.concatenate(self.errors), NOMINAL / 100))
        return Row(
            case.kind,
            name,
            case.setting,
            case.budget,
            covered=100 * float(np.mean(self.hits)),
            waste=self.widths / self.intervals / reach if reach > 0 else math.nan,
            limit=LEAST if enough else self._limit(),
            releases=len(self.hits),
            intervals=self.intervals,
        )

    def _limit(self) -> float:
        # Intervals of one release share its noise, so it is the releases that vary. A few of them tell little of by
        # how much: at least by as much as independent intervals would.
        many = self.intervals / len(self.hits) if not self.joint else 1.0
        spread = max(float(np.std(self.hits)), math.sqrt(NOMINAL / 100 * (1 - NOMINAL / 100) / many))
        return min(LEAST, NOMINAL - 100 * ALLOWED * spread / math.sqrt(len(self.hits)))


def measure(case: Case, *, quick: bool = False, shrink: float = 1.0) -> list[Row]:
    """Run a case and count; ``shrink`` makes every interval narrower, to see that it would be noticed.

    The noise of a trial is seeded with its number, so that a table can be made again to the last digit.
    """
    counts: dict[str, _Count] = {}
    for seed in range(max(4, case.releases // QUICK) if quick else case.releases):
        for answer in answers_of(case, seed):
            counts.setdefault(answer.name, _Count()).add(answer, shrink)
    return [count.row(case, name, quick=quick) for name, count in counts.items() if count.hits]


def answers_of(case: Case, seed: int) -> list[Answer]:
    """Run one trial."""
    with noise.seeded_noise_for_tests_only(seed):
        return list(case.trial(seed))
