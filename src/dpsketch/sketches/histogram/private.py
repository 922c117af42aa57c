"""The released histogram: names with counts and intervals, for ever."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, assert_never

import numpy as np
import numpy.typing as npt

from dpsketch import files, plots
from dpsketch.compound import CompoundKey, compound_keys
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.hashing import KeyType, typed_column
from dpsketch.numbers import probability, whole_number
from dpsketch.privacy import Guarantee
from dpsketch.release import KeyedRelease
from dpsketch.results import Estimate, Estimates
from dpsketch.sketches.documents import integer_array, read_charge, read_guarantee, release_header
from dpsketch.sketches.histogram import intervals
from dpsketch.sketches.histogram.entries import Found
from dpsketch.sketches.histogram.mechanism import Mechanism
from dpsketch.sketches.histogram.rounds import WeightedRounds, unit_weights
from dpsketch.sketches.histogram.spec import HistogramSpec
from dpsketch.sketches.histogram.thresholds import Threshold
from dpsketch.sketches.specs import fingerprint_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpsketch.ledger import Charge

__all__ = ["PrivateHistogram", "named", "names_of"]

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PrivateHistogram(KeyedRelease):
    """A released histogram: public, to be queried for ever.

    Attributes
    ----------
    spec : HistogramSpec
        The public spec.
    mechanism : Mechanism
        The release's parameters: noise, cutoff, rounds.
    listed, found : list
        The keys of the public list, in its order, and those that were found, in their own.
    values : numpy.ndarray of int64
        Their noisy counts in steps of ``spec.grid``, those of the list first; empty where names only were published.
    rest : int or None
        The noisy count of all other keys, or of all keys where ``mechanism.total`` is there.
    guarantee : Guarantee
        What was promised; print it.
    charge : Charge or None
        The ledger's row, where a ledger was charged.
    """

    kind: ClassVar[str] = "histogram"

    spec: HistogramSpec
    mechanism: Mechanism
    listed: list[Any]
    found: list[Any]
    values: Integers
    rest: int | None
    guarantee: Guarantee
    charge: Charge | None = None
    _places: dict[Any, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.values.flags.writeable = False
        object.__setattr__(self, "_places", {key: i for i, key in enumerate(self.keys)})

    @classmethod
    def of(
        cls,
        spec: HistogramSpec,
        mechanism: Mechanism,
        listed: list[Any],
        names: list[Any],
        found: Found,
        rest: int | None,
        guarantee: Guarantee,
        charge: Charge | None,
    ) -> Self:
        """Return the release of what was drawn; ``names`` are those of the places that were found, in their order."""
        values = np.concatenate([found.listed, found.values])
        return cls(spec, mechanism, listed, names, values, rest, guarantee, charge)

    def __repr__(self) -> str:
        return f"<PrivateHistogram of {len(self.keys):,} keys, spec {fingerprint_of(self.spec)}: {self.guarantee}>"

    @property
    def keys(self) -> list[Any]:
        """All keys of the release: the public list, then those that were found, each in an order that says nothing."""
        return [*self.listed, *self.found]

    @property
    def has_counts(self) -> bool:
        """Whether counts were published, and not names only."""
        return self.mechanism.noise is not None

    @property
    def bare_names(self) -> list[Any] | None:
        """The names, where names only were published."""
        return None if self.has_counts else self.keys

    @property
    def counts(self) -> str:
        """What an estimate counts."""
        unit, m = self.spec.unit, self.mechanism.counted
        if unit.level == "record" or m == unit.max_keys:
            return unit.counts
        return f"users, with at most {m} published keys counted each (weight at most {unit.max_weight:g} on each)"

    def estimate(self, keys: Any, *, confidence: float = 0.95) -> Estimates:
        """Estimate the counts of keys.

        Parameters
        ----------
        keys : list, NumPy, Arrow, pandas or polars column
            The keys to look up. Nulls are refused. A key that the release does not have reads 0 where it could have
            been found, with an interval that reaches to what may have stayed below the threshold; where only a list
            was published it is refused.
        confidence : float
            The probability with which each interval covers the count, also given that the key was found: a key that
            just passed did so by its noise, and its interval reaches down accordingly.

        Accuracy
        --------
        Counts are of what was counted, after users were bounded.
        """
        confidence = probability("confidence", confidence)
        asked = self._asked(keys)
        places = np.array([self._places.get(key, -1) for key in asked], np.int64)
        return self._read(asked, places, confidence, 1 - confidence)

    def top(self, n: int, *, candidates: Any = None, confidence: float = 0.95) -> Estimates:
        """Return the ``n`` keys with the largest noisy counts, largest first.

        Parameters
        ----------
        n : int
            How many.
        candidates : list, NumPy, Arrow, pandas or polars column, optional
            Keys to choose from; by default all of the release.
        confidence : float
            The probability with which all intervals hold at once, although the keys were selected by the noise they
            are about: each is widened for the number of keys chosen from (Bonferroni).
        """
        n = whole_number("n", n, low=1, high=2**31)
        confidence = probability("confidence", confidence)
        if candidates is None:
            asked = self.keys
        else:
            asked = list(dict.fromkeys(self._asked(candidates)))
            if not asked:
                raise InvalidInput("top needs at least one candidate key.")
        places = np.array([self._places.get(key, -1) for key in asked], np.int64)
        read = self._read(asked, places, confidence, (1 - confidence) / max(1, len(asked)))
        # The names are in an order of their own, so that equal counts stay in it.
        order = np.argsort(-read.value, kind="stable")[:n]
        note = "" if asked else "No key passed the threshold: none is frequent enough for this budget."
        return Estimates(
            [read.key[i] for i in order], read.value[order], read.low[order], read.high[order], confidence,
            read.counts, note,
        )  # fmt: skip

    @property
    def others(self) -> Estimate | None:
        """All keys that the release does not name, counted together, where that was asked for; with 95% confidence."""
        return self.other_keys()

    def other_keys(self, *, confidence: float = 0.95) -> Estimate | None:
        """Return :attr:`others` with another confidence."""
        if self.rest is None:
            return None
        confidence = probability("confidence", confidence)
        mechanism = self.mechanism
        if mechanism.others is not None:
            low, high = intervals.ordinary(np.array([self.rest]), mechanism.others, (1 - confidence) / 2)
            return self._estimate(self.rest, float(low[0]), float(high[0]), confidence)
        if mechanism.total is None or mechanism.noise is None or mechanism.cutoff is None:
            raise FileRefused("the file has a count of other keys without the law of its noise.")
        from scipy.special import ndtri

        # A key that passed did so by its noise: what is taken away for it is what it counts on average.
        listed, found = self.values[: len(self.listed)], self.values[len(self.listed) :]
        named = intervals.posterior_means(found, mechanism.noise, mechanism.cutoff)
        value = self.rest - float(listed.sum()) - float(named.sum())
        spread = mechanism.total.variance + len(self.values) * mechanism.noise.variance
        reach = float(ndtri((1 + confidence) / 2)) * math.sqrt(spread)
        return self._estimate(value, value - reach, value + reach, confidence)

    def _estimate(self, value: float, low: float, high: float, confidence: float) -> Estimate:
        """Return a number of units as an estimate; no count is below 0."""
        value, low, high = (self.spec.grid * max(0.0, each) for each in (value, low, high))
        return Estimate(value, low, high, confidence)

    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        """Estimate the counts of keys."""
        if estimator is not None:
            raise InvalidInput("a histogram's counts have one estimate: leave the estimator out.")
        return KeyedRelease.answer(self, asked, confidence=confidence, estimator=None, key_type=key_type)

    def plot(self, *, candidates: Any = None, n: int = 20) -> Figure:
        """Draw the ``n`` largest keys with intervals."""
        words = f"histogram, ε = {self.guarantee.epsilon:g}, δ = {self.guarantee.delta:g}"
        return plots.bars(self.top(n, candidates=candidates), words)

    def picture(self, candidates: list[Any] | None, n: int) -> Figure:
        """Draw the ``n`` largest keys, or those of the candidates."""
        return self.plot(candidates=candidates, n=n)

    def facts(self) -> dict[str, Any]:
        """Return what a reader of the file may want to know beside spec and guarantee."""
        mechanism = self.mechanism
        cutoff = None if mechanism.cutoff is None else self.spec.grid * mechanism.cutoff
        others = self.others
        return {
            "keys": len(self.keys),
            "listed": len(self.listed),
            "form": mechanism.form,
            "threshold": cutoff,
            "noise_scale": None
            if mechanism.noise is None
            else self.spec.grid * float(np.sqrt(mechanism.noise.variance)),
            "others": None if others is None else others.to_json(),
        }

    def _asked(self, keys: Any) -> list[Any]:
        return names_of(keys, self.spec)

    def _read(self, asked: list[Any], places: Integers, confidence: float, tail: float) -> Estimates:
        if not self.has_counts:
            raise InvalidInput(
                "this release has names only, which `dpsketch top` lists. Release with counts to ask for counts."
            )
        missing = places < 0
        mechanism, law = self.mechanism, self.mechanism.noise
        assert law is not None
        if missing.any() and not mechanism.finds:
            raise InvalidInput("a key that was asked for is not on this release's public list, and it knows no other.")
        value = np.zeros(len(places))
        low, high = np.zeros(len(places)), np.full(len(places), self._ceiling(tail))
        there = np.flatnonzero(~missing)
        noisy = self.values[places[there]]
        value[there] = noisy
        low[there], high[there] = intervals.ordinary(noisy, law, tail / 2)
        if mechanism.cutoff is not None:
            chosen = there[places[there] >= len(self.listed)]
            low[chosen], high[chosen] = intervals.selective(
                self.values[places[chosen]], law, mechanism.cutoff, tail / 2
            )
        grid = self.spec.grid
        low = np.maximum(low, 0)
        return Estimates(asked, grid * value, grid * low, grid * np.maximum(high, low), confidence, self.counts)

    def _ceiling(self, tail: float) -> float:
        """Return what a key that was not found may count, but for a chance of ``tail``."""
        mechanism = self.mechanism
        match mechanism.finding:
            case None:
                return 0.0
            case Threshold(law, cutoff):
                return float(cutoff + intervals.half_width(law, tail))
            case WeightedRounds(laws, cutoffs, cap):
                # Whoever counts on it gives it the least weight at least, and that of the last round did not pass.
                return (cutoffs[-1] + intervals.half_width(laws[-1], tail)) / int(unit_weights(cap)[-1])
            case never:
                assert_never(never)

    def to_document(self) -> files.Document:
        """Return the release as a document of the file format."""
        header = release_header(
            self.spec.to_json(), self.guarantee, self.charge, mechanism=self.mechanism.to_json(), rest=self.rest
        )
        arrays: dict[str, files.Array] = {
            "listed": _stored(self.listed), "found": _stored(self.found), "values": self.values
        }  # fmt: skip
        return files.Document("histogram", False, header, arrays)

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        """Rebuild a release from a decoded file."""
        spec, promise = HistogramSpec.from_json(document.header["spec"]), read_guarantee(document)
        mechanism = Mechanism.from_json(document.header["mechanism"], promise)
        listed, found = (_names(document.arrays.get(name), spec) for name in ("listed", "found"))
        keys = len(listed) + len(found)
        values = integer_array(document, "values", (keys if mechanism.noise is not None else 0,))
        rest = document.header["rest"]
        good = len(set(listed) | set(found)) == keys and isinstance(rest, int | None) and not isinstance(rest, bool)
        good = good and (mechanism.finds or not found) and found == sorted(found, key=_order)
        if good and mechanism.cutoff is not None and found:
            good = int(values[len(listed) :].min()) >= mechanism.cutoff
        if not good:
            raise FileRefused("the file's keys are not those that a histogram publishes.")
        return cls(spec, mechanism, listed, found, values, rest, promise, read_charge(document))


def names_of(keys: Any, spec: HistogramSpec) -> list[Any]:
    """Return keys as releases write them: signed integers of 64 bits, text, and bytes where they are no text.

    Compound keys are tuples, which are written as their rows.
    """
    if spec.key_columns:
        return list(compound_keys(keys, spec.key_columns))
    column, _, _ = typed_column(keys, spec.key_type)
    if column.null_count:
        raise InvalidInput("a null is not a key that can be looked up or listed.")
    return [_name(key) for key in column.to_pylist()]


def named(texts: list[Any], spec: HistogramSpec) -> list[Any]:
    """Return what was counted as a release names it; None for a text that is no key of the spec's columns."""
    parts = len(spec.key_columns)
    return [CompoundKey.stored(text, parts) for text in texts] if parts else texts


def _name(key: Any) -> Any:
    if isinstance(key, int):
        return (key + 2**63) % 2**64 - 2**63
    return _text(key) if isinstance(key, bytes) else key


def _text(name: bytes) -> str | bytes:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name


def _order(name: Any) -> Any:
    """Return what names are sorted by: integers by value, texts by their bytes."""
    return str(name).encode() if isinstance(name, str | CompoundKey) else name


def _stored(names: list[Any]) -> files.Array:
    """Return names as an array of a file: integers, or the bytes of texts; no names are no texts."""
    if names and isinstance(names[0], int):
        return np.array(names, np.int64)
    return [name if isinstance(name, bytes) else str(name).encode() for name in names]


def _names(array: Any, spec: HistogramSpec) -> list[Any]:
    if isinstance(array, list) and all(isinstance(each, bytes) for each in array):
        names: list[Any] = named([_text(each) for each in array], spec)
        if None in names:
            raise FileRefused("the file's names of keys are not rows of the columns that it says they have.")
        return names
    if isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind in "iu":
        return [_name(key) for key in array.tolist()]
    raise FileRefused("the file's names of keys are not ones that dpsketch writes.")
