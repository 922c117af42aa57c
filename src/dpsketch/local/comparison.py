"""What exists to be compared with: PrivSketch as published, with the attack on it, and its rivals.

**PrivSketch as published is not private.** A person's set is hashed into a sketch of ``rows`` × ``width`` bits. One bit
(or, in the variant without sampling, every bit) goes through randomised response. With it goes an *ordering matrix*:
the rank of every cell when cells are sorted by value, ties broken at random. From it the collector knows in which row a
key has its smallest cell, decodes each report by itself, and avoids collisions between people.

The ordering matrix is computed from the sketch without noise, and its highest ranks are exactly the occupied cells. So
it gives the set away, whatever ε is (:func:`recover_sets`). The paper argues that several sketches remain possible for
every matrix; local differential privacy asks that *all* do.

**Its rivals** are all ε-locally private: Multi-PCMS-Mean and -Min, PS-OLH, SVIM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch._compiled import local as kernels
from dpsketch.distributions import normal_quantile, upper_quantile
from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint
from dpsketch.local.bits import BitRow, RowTable
from dpsketch.local.hashed import HashedProtocol, OptimalLocalHashing, SubsetDirect
from dpsketch.local.intervals import Frequencies, share_of
from dpsketch.local.protocol import (
    WHOLE_SET,
    LocalProtocol,
    People,
    keep_threshold,
    local_guarantee,
    odds_below,
    offsets_of,
    privacy_parameter,
    read_people,
)
from dpsketch.local.wire import Columns, Field
from dpsketch.noise import random_below, random_words
from dpsketch.numbers import hold_whole, whole_number
from dpsketch.privacy import Guarantee, Unit
from dpsketch.results import Estimates, key_list

__all__ = [
    "SVIM", "Calibration", "Decoder", "MultiPCMS", "PadAndSample", "PrivSketchAsPublished", "Variant", "order_scores",
    "recover_sets",
]  # fmt: skip


Variant = Literal["sampled", "unsampled"]
Calibration = Literal["corrected", "as_published"]

NOT_PRIVATE = "not locally private: the ordering matrix reveals the set"

# People drawn at a time; each takes half a random word a cell.
_CHUNK = 4096


@dataclass(frozen=True)
class PrivSketchAsPublished(RowTable):
    """PrivSketch with its ordering matrix. **Not locally private for any ε**; for comparison only.

    Parameters
    ----------
    epsilon : float
        The ε of its randomised response, which its reports do *not* satisfy.
    rows, width : int, optional
        K and M, the shape of everyone's sketch; the paper's 4 and 128 by default.
    variant : {"sampled", "unsampled"}
        One random bit at ε (the paper's choice), or all bits at ε/(K·M) each.
    calibration : {"corrected", "as_published"}
        The printed estimate of the sampled form lacks a factor K·M; "corrected" has it. No difference without sampling.
    seed : int, optional
        The hash functions. Public.

    Privacy
    -------
    None. The guarantee says so, and :func:`recover_sets` finds the whole set of nearly every person with one item.

    Accuracy
    --------
    Unbiased for f̃, the mean over people of the key's smallest cell, which is f plus collisions within a person's own
    sketch. Variance of the corrected sampled form: [KM(v₁ + f̃) − f̃]/n, v₁ = E/(E−1)²; without sampling E'/(n(E'−1)²),
    E' = e^(ε/KM). Intervals cover f̃.

    References
    ----------
    Li et al., *PrivSketch: a private sketch-based frequency estimation protocol for data streams* (DEXA 2023).

    Examples
    --------
    >>> print(PrivSketchAsPublished(epsilon=3.0).guarantee.caveat)
    not locally private: the ordering matrix reveals the set
    """

    name: ClassVar[str] = "privsketch-as-published"
    ranges: ClassVar = {**RowTable.ranges, "rows": (1, 2**10)}
    purpose: ClassVar[str] = "privsketch"
    cell_bits: ClassVar[int] = 16

    rows: int = 4
    width: int = 128
    variant: Variant = "sampled"
    calibration: Calibration = "corrected"
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant not in ("sampled", "unsampled"):
            raise InvalidInput("variant is 'sampled' or 'unsampled'.")
        if self.calibration not in ("corrected", "as_published"):
            raise InvalidInput("calibration is 'corrected' or 'as_published'.")

    @property
    def cells(self) -> int:
        """K·M, the bits of one person's sketch."""
        return self.rows * self.width

    @property
    def keep(self) -> float:
        """The probability that a reported bit is true."""
        return self._threshold / 2**64

    @property
    def _threshold(self) -> int:
        return keep_threshold(odds_below(self.epsilon, 1 if self.variant == "sampled" else self.cells))

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a report; ``order`` holds 16-bit ranks, little-endian."""
        order = Field("order", 2 * self.cells, raw=True)
        if self.variant == "sampled":
            return Field("cell", 2, limit=self.cells), Field("bit", 1, limit=2), order
        return Field.bits("bits", self.cells), order

    @property
    def mechanism(self) -> str:
        """How a report is drawn."""
        return f"PrivSketch as published, {self.rows}×{self.width}, {self.variant}"

    @property
    def guarantee(self) -> Guarantee:
        """The statement that there is none."""
        return Guarantee(
            epsilon=self.epsilon,
            delta=0.0,
            unit=self.unit,
            costs=(),
            mechanism=self.mechanism,
            caveat=NOT_PRIVATE,
            holds=False,
        )

    def randomise(self, people: People) -> Columns:
        """Draw everyone's bits and ordering matrix."""
        n = len(people)
        keys = self.keys
        occupied = np.zeros((n, self.cells), np.uint8)
        order = np.empty((n, self.cells), np.uint16)
        for start in range(0, n, _CHUNK):
            part = slice(start, min(start + _CHUNK, n))
            size = (part.stop - start) * self.cells
            halves = random_words(-(-size // 2)).view(np.uint32)[:size].reshape(-1, self.cells)
            offsets = people.offsets[start : part.stop + 1]
            kernels.order_cells(offsets, people.prints, keys, self.width, halves, occupied[part], order[part])
        ranks = order.astype("<u2").view(np.uint8).reshape(n, 2 * self.cells)
        threshold = np.uint64(self._threshold)
        if self.variant == "sampled":
            cell = random_below(self.cells, n).astype(np.int64)
            flipped = (random_words(n) >= threshold).astype(np.uint8)
            return {"cell": cell.astype(np.uint16), "bit": occupied[np.arange(n), cell] ^ flipped, "order": ranks}
        flips = (random_words(n * self.cells) >= threshold).astype(np.uint8).reshape(n, self.cells)
        return {"bits": np.packbits(occupied ^ flips, axis=1, bitorder="little"), "order": ranks}

    def plausible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Say which reports have values in range and a permutation as their order."""
        ranks = np.sort(_ranks(columns), axis=1)
        valid: npt.NDArray[np.bool_] = (ranks == np.arange(self.cells)).all(axis=1)
        return valid & super().plausible(columns)

    def frequencies(
        self, tally: Any, users: int, fingerprints: npt.NDArray[np.uint64], confidence: float
    ) -> Frequencies:
        """Estimate the share of people whose sketch has a key's smallest cell occupied."""
        users = whole_number("users", users, low=1)
        columns = tally.columns()
        cells = kernels.columns_of(fingerprints, self.keys, self.width)
        ones = np.zeros(len(fingerprints), np.int64)
        stretch = 1 / (2 * self.keep - 1)
        if self.variant == "sampled":
            matching = np.zeros(len(fingerprints), np.int64)
            starts, items = _by_cell(cells, self.cells)
            order = _ranks(columns)
            kernels.decode_sampled(columns["cell"], columns["bit"], order, cells, starts, items, ones, matching)
            signs = 2 * ones - matching
            if self.calibration == "corrected":
                value = self.cells / users * (stretch * signs + matching) / 2
            else:
                value = (stretch * signs / users + 1) / 2
        else:
            kernels.decode_all(columns["bits"], _ranks(columns), cells, ones)
            value = (stretch * (2 * ones / users - 1) + 1) / 2
        half = normal_quantile(confidence) * np.sqrt(self._variances(np.clip(value, 0.0, 1.0), users))
        return Frequencies(value, value - half, value + half)

    def variance(self, frequency: float, users: int) -> float:
        """Predict the variance of the corrected estimate, ``frequency`` being the share f̃."""
        frequency, users = share_of(frequency, users)
        return float(self._variances(np.array([frequency]), users)[0])

    def _variances(self, shares: npt.NDArray[np.float64], users: int) -> npt.NDArray[np.float64]:
        keep = self.keep
        noise = keep * (1 - keep) / (2 * keep - 1) ** 2
        if self.variant == "sampled":
            return (self.cells * (noise + shares) - shares) / users
        return np.full(len(shares), noise / users)


def recover_sets(protocol: PrivSketchAsPublished, reports: pa.Table, candidates: Any) -> list[list[Any]]:
    """Read people's sets off their ordering matrices alone; no randomised bit is looked at.

    Parameters
    ----------
    protocol : PrivSketchAsPublished
        The public spec.
    reports : pyarrow.Table
        What the collector received.
    candidates : column of keys
        The keys that people may hold.

    Returns
    -------
    list of list
        The set found for each report.

    Examples
    --------
    >>> protocol = PrivSketchAsPublished(epsilon=0.1)
    >>> secret = [[17], [4], [999]]
    >>> recover_sets(protocol, protocol.report(secret), range(1000)) == secret
    True
    """
    asked = key_list(candidates)
    order, cells = _matrices(protocol, reports), _cells(protocol, candidates)
    found: list[list[Any]] = []
    step = max(1, math.floor(2**26 / max(1, len(cells))))
    for start in range(0, len(order), step):
        part = order[start : start + step]
        held = np.zeros((len(part), len(cells)), np.bool_)
        kernels.recover(part, cells, held)
        found.extend([asked[x] for x in np.flatnonzero(row)] for row in held)
    return found


def order_scores(protocol: PrivSketchAsPublished, reports: pa.Table, key: Any) -> npt.NDArray[np.float64]:
    """Score each report by its ordering matrix alone: the lowest rank among a key's own cells, high if it is held.

    This is the distinguisher of an audit; any threshold below the occupied cells' ranks tells holders from others.
    """
    [own] = _cells(protocol, [key])
    lowest: npt.NDArray[np.float64] = _matrices(protocol, reports)[:, own].min(axis=1).astype(np.float64)
    return lowest


def _matrices(protocol: PrivSketchAsPublished, reports: pa.Table) -> npt.NDArray[np.uint16]:
    columns, _ = protocol.form.from_table(reports)
    if columns is None:
        raise InvalidInput("the reports are of another spec.")
    return _ranks(columns)


def _cells(protocol: PrivSketchAsPublished, keys: Any) -> npt.NDArray[np.int64]:
    """Return the flat cell of each key in each row."""
    prints = fingerprint(keys, protocol.key_type).fingerprints
    return kernels.columns_of(prints, protocol.keys, protocol.width)


def _ranks(columns: Columns) -> npt.NDArray[np.uint16]:
    return np.ascontiguousarray(columns["order"]).view("<u2")


def _by_cell(cells: npt.NDArray[np.int64], total: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """List the keys of each cell: those of cell c are ``items[starts[c]:starts[c + 1]]``."""
    flat = cells.ravel()
    order = np.argsort(flat, kind="stable")
    return offsets_of(np.bincount(flat, minlength=total)), order // cells.shape[1]


Decoder = Literal["mean", "min"]

# SVIM's people for finding candidates, for sizes, and for frequencies, in tenths.
_TENTHS = (5, 1, 4)
_SHARE_WITHIN = 0.9
# With this probability any size that nobody has survives the cut.
_CUT = 0.05


@dataclass(frozen=True)
class MultiPCMS(BitRow):
    """Apple's count-mean sketch stretched to sets: a whole row of bits, each at ε/width.

    Parameters
    ----------
    epsilon : float
        What one report may reveal, between 0.001 and 20.
    rows, width : int, optional
        Shape of the sketch; the paper's 4 and 128 by default.
    decoder : {"mean", "min"}
        Multi-PCMS-Mean averages a key's cells and corrects for collisions; Multi-PCMS-Min takes the smallest.
    seed : int, optional
        The hash functions. Public.

    Privacy
    -------
    ε-locally differentially private for sets of any size: each of ``width`` bits is kept with probability T/2³², T
    rounded down, at odds of at most e^(ε/width); the odds of all bits multiply to at most e^ε.

    Accuracy
    --------
    Poor, for noise of scale width/ε in every bit, and for collisions of everyone's items in few rows. The interval of
    "min" covers the noise of one cell alone: the minimum is biased, down by noise and up by collisions.

    References
    ----------
    Li et al., *PrivSketch* (DEXA 2023), sections 2 and 4.

    Examples
    --------
    >>> MultiPCMS(epsilon=3.0, decoder="min").report([["a", "b"]]).column_names
    ['id', 'row', 'bits']
    """

    name: ClassVar[str] = "multi-pcms"

    rows: int = 4
    width: int = 128
    decoder: Decoder = "mean"
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decoder not in ("mean", "min"):
            raise InvalidInput("decoder is 'mean' or 'min'.")

    @property
    def differing(self) -> int:
        """Two sets may differ in every bit."""
        return self.width

    @property
    def mechanism(self) -> str:
        """How a report is drawn."""
        return f"randomised response at ε/{self.width} on each bit of one row; a record is one person's whole set"

    def frequencies(
        self, tally: Any, users: int, fingerprints: npt.NDArray[np.uint64], confidence: float
    ) -> Frequencies:
        """Estimate the share of people who hold each key."""
        users = whole_number("users", users, low=1)
        ones, reports = tally.tables["ones"], tally.tables["reports"]
        keep, keys = self.keep, self.keys
        flip, gap = 1 - keep, 2 * keep - 1
        if self.decoder == "min":
            seen = np.maximum(reports, 1)
            rows = [
                (kernels.sum_over_rows(ones[r : r + 1], keys[r : r + 1], fingerprints) / seen[r] - flip) / gap
                for r in range(self.rows)
            ]
            value = np.min(rows, axis=0)
            deviation = np.sqrt(keep * flip / float(seen.min())) / gap
        else:
            occupied = (kernels.sum_over_rows(ones, keys, fingerprints) / users - flip) / gap
            overall = (int(ones.sum()) / (users * self.width) - flip) / gap
            empty = max(1 - overall, 0.01)
            value = (occupied - overall) / empty
            # An absent key falls on random cells: the cells' own variance is that of its support.
            deviation = np.sqrt(float(np.sum(np.var(ones, axis=1, ddof=1)))) / users / gap / empty
        half = normal_quantile(confidence) * deviation
        return Frequencies(value, value - half, value + half)

    def variance(self, frequency: float, users: int) -> float:
        """Predict the variance that the noise alone gives to the mean of a key's cells, before collisions."""
        keep = self.keep
        _, users = share_of(frequency, users)
        return keep * (1 - keep) / (2 * keep - 1) ** 2 / users


@dataclass(frozen=True)
class PadAndSample(HashedProtocol):
    """PS-OLH: pad or cut every set to a common length, sample one item, report it by optimal local hashing.

    Parameters
    ----------
    epsilon : float
        What one report may reveal, between 0.001 and 20.
    length : int
        ℓ, the common length; the paper takes the 90th percentile of set sizes.
    width, seeds, seed : int, optional
        As for :class:`OptimalLocalHashing`.

    Privacy
    -------
    ε-locally differentially private for sets of any size: a mixture, over the sampled item, of ε-private reports; a
    dummy is a fresh random bucket.

    Accuracy
    --------
    n·Var near ℓ²·4E/(E−1)² for rare keys; a person with s > ℓ items counts ℓ/s.

    References
    ----------
    Wang, Li and Jha, *Locally differentially private frequent itemset mining* (S&P 2018), section IV.

    Examples
    --------
    >>> PadAndSample(epsilon=1.0, length=5).report([["a", "b"], []]).column_names
    ['id', 'seed', 'bucket']
    """

    name: ClassVar[str] = "pad-and-sample"
    ranges: ClassVar = {"length": (1, 2**31), **HashedProtocol.ranges}

    length: int
    width: int | None = None
    seeds: int = 4096
    seed: int = 1

    @property
    def unit(self) -> Unit:
        """A whole set, of which one item is sampled."""
        return WHOLE_SET

    @property
    def mechanism(self) -> str:
        """How a report is drawn."""
        return f"one item sampled of {self.length}, optimal local hashing; a record is one person's whole set"

    @property
    def chances(self) -> tuple[float, float]:
        """P and q: a key of the set is sampled once in ℓ times."""
        p_true, p_false = super().chances
        return p_false + (p_true - p_false) / self.length, p_false

    def randomise(self, people: People) -> Columns:
        """Sample everyone's item and draw the report about it."""
        people = people.distinct()
        sizes = np.diff(people.offsets)
        place = _below_each(np.maximum(sizes, self.length))
        sampled = random_words(len(people))  # dummies
        real = place < sizes
        sampled[real] = people.prints[(people.offsets[:-1] + place)[real]]
        return super().randomise(People(np.arange(len(people) + 1, dtype=np.int64), sampled))


@dataclass(frozen=True, slots=True)
class SVIM:
    """Set-value item mining: find 2k candidates, learn how many of them people hold, then estimate those alone.

    Parameters
    ----------
    epsilon : float
        What one report may reveal; everyone reports once, in one of the three phases.
    top : int
        k, the number of heavy hitters wanted.

    Privacy
    -------
    ε-locally differentially private for sets of any size: everyone takes part in one phase, drawn at random, with one
    ε-private report (:class:`PadAndSample`, :class:`OptimalLocalHashing`, :class:`SubsetDirect` or
    :class:`PadAndSample`).

    Accuracy
    --------
    Good at ranking, since all the budget of the last phase goes to 2k keys; only two fifths of the people see it.

    References
    ----------
    Wang, Li and Jha, *Locally differentially private frequent itemset mining* (S&P 2018), section V. Its padded
    generalised randomised response, amplified by sampling, is the law of :class:`SubsetDirect`.

    Examples
    --------
    >>> SVIM(epsilon=4.0, top=1).run([["tea"], ["tea", "milk"]] * 500, domain=["tea", "milk", "rum"]).key
    ['tea']
    """

    epsilon: float
    top: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", privacy_parameter(self.epsilon))
        hold_whole(self, "top", low=1, high=2**16)

    @property
    def guarantee(self) -> Guarantee:
        """What everyone's one report promises."""
        return local_guarantee(self.epsilon, WHOLE_SET, "SVIM, one report in one of its phases")

    def run(self, sets: Any, *, domain: Any) -> Estimates:
        """Run all phases on people's sets, and return the k heavy hitters with the shares of people who hold them."""
        people = read_people(sets).distinct()
        asked = key_list(domain)
        prints = fingerprint(domain).fingerprints
        if len(asked) < 2 or len(np.unique(prints)) != len(asked):
            raise InvalidInput("domain must list at least two keys, each once.")
        tenth = random_below(sum(_TENTHS), len(people)).astype(np.int64)
        first, second = _TENTHS[0], _TENTHS[0] + _TENTHS[1]
        groups = (tenth < first, (tenth >= first) & (tenth < second), tenth >= second)
        if not all(bool(np.any(group)) for group in groups):
            raise InvalidInput("SVIM needs more people: one of its three groups is empty.")

        found = self._estimate(self.first_phase, people.take(groups[0]), asked)
        best = np.argsort(-found.value, kind="stable")[: 2 * self.top]
        candidates = [asked[i] for i in best]
        held = people.only(np.isin(people.prints, prints[best]))

        counts = self._sizes(held.take(groups[1]), len(candidates))
        within = np.cumsum(counts) / counts.sum()
        length = int(np.searchsorted(within, _SHARE_WITHIN)) + 1
        final = self._estimate(self.last_phase(length, candidates), held.take(groups[2]), candidates)

        # A person with more candidates than `length` reported about a part of them: scale back by the mean part.
        part = np.minimum(1.0, length / np.arange(1, len(counts) + 1))
        scale = float(counts.sum() / np.sum(counts * part))
        order = np.argsort(-final.value, kind="stable")[: self.top]
        value, low, high = (scale * each[order] for each in (final.value, final.low, final.high))
        return Estimates([candidates[i] for i in order], value, low, high, final.confidence)

    @property
    def first_phase(self) -> LocalProtocol:
        """The protocol by which candidates are found."""
        return PadAndSample(self.epsilon, length=1)

    @property
    def size_phase(self) -> LocalProtocol:
        """The protocol by which people say how many candidates they hold."""
        return OptimalLocalHashing(self.epsilon, key_type="int")

    def last_phase(self, length: int, candidates: list[Any]) -> LocalProtocol:
        """Return the protocol of the last phase: direct reporting for few candidates, hashing for many."""
        if len(candidates) < length * (4 * length - 1) * float(odds_below(self.epsilon)) + 1:
            return SubsetDirect(self.epsilon, max_items=length, domain=tuple(candidates))
        return PadAndSample(self.epsilon, length=length)

    def _sizes(self, people: People, most: int) -> npt.NDArray[np.float64]:
        """Estimate how many people hold 1 … ``most`` of the candidates."""
        protocol = self.size_phase
        sizes = np.minimum(np.diff(people.offsets), most)
        collector = protocol.collector().add(protocol.report(sizes))
        found = collector.estimate(np.arange(1, most + 1))
        # What does not stand out of the noise is cut: the noise's positive parts would outweigh the sizes that there
        # are. Most sizes are rare, so the median interval tells the noise (Wang et al., NDSS 2020, "Base-Cut").
        deviation = float(np.median(found.high - found.low)) / (2 * normal_quantile(found.confidence))
        shares = np.where(found.value < upper_quantile(_CUT / most) * deviation, 0.0, found.value)
        return shares if shares.sum() > 0 else np.ones(most)

    @staticmethod
    def _estimate(protocol: LocalProtocol, people: People, keys: list[Any]) -> Estimates:
        return protocol.collector().add(protocol.report(people)).estimate(keys)


def _below_each(bounds: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return one exactly uniform integer below each bound."""
    limits = bounds.astype(np.uint64)
    excess = (np.uint64(0) - limits) % limits
    words = random_words(len(limits))
    refused = np.flatnonzero(words > ~excess)
    while len(refused):
        words[refused] = random_words(len(refused))
        refused = refused[words[refused] > ~excess[refused]]
    below: npt.NDArray[np.int64] = (words % limits).astype(np.int64)
    return below
