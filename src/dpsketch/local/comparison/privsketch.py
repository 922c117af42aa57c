"""PrivSketch as published, kept for comparison: it is not private, and this module holds the attack that shows it.

A person's set is hashed into a sketch of ``rows`` × ``width`` bits. One bit (or, in the variant without sampling, every
bit) goes through randomised response. With it goes an *ordering matrix*: the rank of every cell when cells are sorted
by value, ties broken at random. From it the collector knows in which row a key has its smallest cell, decodes each
report by itself, and avoids collisions between people.

The ordering matrix is computed from the sketch without noise, and its highest ranks are exactly the occupied cells. So
it gives the set away, whatever ε is (:func:`recover_sets`). The paper argues that several sketches remain possible for
every matrix; local differential privacy asks that *all* do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpsketch._compiled import local_published as kernels
from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint
from dpsketch.local.bits import RowTable
from dpsketch.local.intervals import Frequencies, normal_quantile, share_of
from dpsketch.local.odds import keep_threshold, odds_below
from dpsketch.local.sets import People, offsets_of
from dpsketch.local.wire import Columns, Field
from dpsketch.noise import random_below, random_words
from dpsketch.numbers import whole_number
from dpsketch.privacy import Guarantee
from dpsketch.results import key_list

__all__ = ["Calibration", "PrivSketchAsPublished", "Variant", "order_scores", "recover_sets"]

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
