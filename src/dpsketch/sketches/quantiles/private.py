"""Released quantiles: the values that were drawn, with what is known of their error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from dpsketch import plots
from dpsketch.arrays import Integers, read_only
from dpsketch.core.drawn import Part
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.laws.recursion import Recursion
from dpsketch.numbers import probability
from dpsketch.release import SketchRelease
from dpsketch.results import Estimates, key_list
from dpsketch.sketches.quantiles.spec import (
    ANSWERS,
    CONFIDENCE,
    HIGH_ENDS,
    LOW_ENDS,
    QuantileSpec,
    as_fraction,
    rank_errors,
)
from dpsketch.sketches.ranges.private import Quantile
from dpsketch.sketches.specs import fingerprint_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsketch.hashing import KeyType

__all__ = ["PrivateQuantiles"]


@dataclass(frozen=True, slots=True, eq=False)
class PrivateQuantiles(SketchRelease):
    """The released quantiles that were named when their sketch was made."""

    kind: ClassVar[str] = "quantiles"
    spec_type: ClassVar[Any] = QuantileSpec

    spec: QuantileSpec

    @classmethod
    def _takes(cls, spec: Any, parts: Mapping[str, Part]) -> bool:
        whole = {ANSWERS}, {ANSWERS, LOW_ENDS, HIGH_ENDS}
        return parts.keys() in whole and all(isinstance(part.law, Recursion) for part in parts.values())

    def __post_init__(self) -> None:
        shifts = {name: self._law(name).shift for name in self.drawn.parts}
        of_others = any(self._law(name).quantiles != self.spec.quantiles for name in shifts)
        if of_others or shifts not in ({ANSWERS: 0}, {ANSWERS: 0, LOW_ENDS: -self.shift, HIGH_ENDS: self.shift}):
            raise FileRefused("the file's laws are not those of its quantiles.")

    def _law(self, name: str) -> Recursion:
        return cast(Recursion, self.drawn.parts[name].law)

    @property
    def law(self) -> Recursion:
        """How the quantiles were drawn."""
        return self._law(ANSWERS)

    @property
    def cells(self) -> Integers:
        """The cell of the public grid that was drawn for each quantile, in increasing order."""
        return self._drawn(ANSWERS)

    @property
    def ends(self) -> Integers:
        """The cells that were drawn for the lower and the upper ends of their intervals; no rows where none were."""
        if not self.shift:
            return np.empty((0, len(self.spec.quantiles)), np.int64)
        return np.stack([self._drawn(LOW_ENDS), self._drawn(HIGH_ENDS)])

    def _drawn(self, name: str) -> Integers:
        return read_only(cast(Integers, self.drawn.parts[name].arrays["cells"]))

    @property
    def shift(self) -> int:
        """By how many units of weight the targets of the ends were moved; 0 where none were drawn."""
        return self._law(HIGH_ENDS).shift if HIGH_ENDS in self.drawn.parts else 0

    def __repr__(self) -> str:
        return f"<PrivateQuantiles, {len(self.cells)} of them, spec {fingerprint_of(self.spec)}>"

    def quantile(self, share: Any, *, confidence: float = 0.95) -> Quantile:
        """Return a quantile that was named: 0.5 is the median.

        Accuracy
        --------
        ``rank_error`` bounds how far the answer's ranks are from the share of all records, with probability
        ``confidence`` and whatever the data; it is about ten times what they usually are off. Where ``interval_share``
        was positive, ``low`` and ``high`` were drawn with targets shifted by such a bound: they cover the quantile with
        a probability of at least 95% if there are at least :attr:`least_records` records. Without a share, or for a
        greater confidence, the release has no interval: ``low`` and ``high`` are None.
        """
        return self.quantiles([share], confidence=confidence)[0]

    def quantiles(self, shares: Any = None, *, confidence: float = 0.95) -> list[Quantile]:
        """Return several quantiles that were named, or all of them."""
        confidence = probability("confidence", confidence)
        asked = self.spec.quantiles if shares is None else [self._named(share) for share in key_list(shares)]
        errors = rank_errors(self.law, 1 - confidence)
        return [self._one(self.spec.quantiles.index(share), errors, confidence) for share in asked]

    @property
    def least_records(self) -> float | None:
        """From how many records on the intervals hold; None where their ends were not drawn."""
        return self.spec.least_records(self.shift) if self.shift else None

    def _named(self, share: Any) -> Fraction:
        asked = as_fraction(share)
        if asked not in self.spec.quantiles:
            named = ", ".join(_percent(one) for one in self.spec.quantiles[:20])
            raise InvalidInput(
                f"this release answers the quantiles that were named when its sketch was made ({named}"
                f"{', …' if len(self.spec.quantiles) > 20 else ''}), or ask it without keys for all of them. A "
                "RangeSketch without quantiles= answers any."
            )
        return asked

    def _one(self, place: int, errors: list[float], confidence: float) -> Quantile:
        grid = self.spec.cells
        least, most = grid.ends(int(self.cells[place]))
        low: int | None = None
        high: int | None = None
        if self._has_intervals(confidence):
            low = min(least, grid.ends(int(self.ends[0, place]))[0])
            high = max(most, grid.ends(int(self.ends[1, place]))[1])
        share, error = float(self.spec.quantiles[place]), self.spec.grid * errors[place]
        return Quantile(share, (least + most) // 2, low, high, error, confidence)

    def _has_intervals(self, confidence: float) -> bool:
        """Return whether ends of intervals were drawn that hold with this confidence."""
        return bool(len(self.ends)) and confidence <= CONFIDENCE

    def plot(self, *, confidence: float = 0.95) -> Figure:
        """Draw the quantiles over their shares, with their intervals where their ends were drawn."""
        found = self.quantiles(confidence=confidence)
        figure = plots.new_figure()
        axes = figure.subplots()
        shares, values = [one.share for one in found], [one.value for one in found]
        if self._has_intervals(confidence):
            lows, highs = np.array([(one.low, one.high) for one in found], dtype=np.float64).T
            axes.vlines(shares, lows, highs, color="#9db8d2", linewidth=4, label=f"{confidence:.0%} intervals")
            axes.legend(frameon=False, loc="upper left")
        axes.plot(shares, values, "o-", color="#1f4e79", linewidth=1)
        axes.set_xlim(0, 1)
        axes.set_xlabel("share of the records")
        axes.set_ylabel("value that they lie at or below")
        axes.set_title(self.title("quantiles"), fontsize=9, loc="left", wrap=True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        return figure

    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        """Answer percentages (50%) by quantiles, and an empty question by all that were named.

        Where the release has no intervals, their ends are NaN, and a note says how to get some.
        """
        shares = [_share(str(one)) for one in asked] or list(self.spec.quantiles)
        found = self.quantiles(shares, confidence=confidence)
        names = [str(one) for one in asked] or [_percent(share) for share in shares]
        rows = np.array([[one.value, one.low, one.high] for one in found], dtype=np.float64)
        return Estimates(
            names, rows[:, 0], rows[:, 1], rows[:, 2], confidence, self.counts, note=self._note(confidence)
        )

    def _note(self, confidence: float) -> str:
        """Say why there are no intervals, and how to get some; empty where there are."""
        if self._has_intervals(confidence):
            return ""
        if len(self.ends):
            return f"no intervals: those of this release hold with a confidence of at most {CONFIDENCE:g}."
        return "no intervals: the quantiles got the whole budget. A sketch made with interval_share=0.5 has them."

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        return {
            "levels": self.law.levels,
            "epsilon_a_level": self.law.epsilon,
            "least_records": self.least_records,
            "quantiles": [one.to_json() for one in self.quantiles()],
        }


def _share(text: str) -> Fraction:
    """Read a percentage (50%) or a share (0.5) as a fraction."""
    try:
        return Fraction(text[:-1]) / 100 if text.endswith("%") else Fraction(text)
    except (ValueError, ZeroDivisionError):
        pass
    raise InvalidInput("ask for quantiles as 50%, or ask it without keys for all that were named.")


def _percent(share: Fraction) -> str:
    return f"{float(100 * share):.12g}%"
