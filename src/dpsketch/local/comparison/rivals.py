"""The protocols that PrivSketch was compared with, all ε-locally private: Multi-PCMS-Mean and -Min, PS-OLH, SVIM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from dpsketch._compiled import local as kernels
from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint
from dpsketch.local.bits import BitRow
from dpsketch.local.hashed import HashedProtocol, OptimalLocalHashing
from dpsketch.local.intervals import Frequencies, normal_quantile, share_of
from dpsketch.local.odds import odds_below, privacy_parameter
from dpsketch.local.protocol import WHOLE_SET, LocalProtocol, local_guarantee
from dpsketch.local.sets import People, read_people
from dpsketch.local.subset_direct import SubsetDirect
from dpsketch.local.wire import Columns
from dpsketch.noise import random_below, random_words
from dpsketch.numbers import hold_whole, whole_number
from dpsketch.privacy import Guarantee, Unit
from dpsketch.results import Estimates, key_list

__all__ = ["SVIM", "Decoder", "MultiPCMS", "PadAndSample"]

Decoder = Literal["mean", "min"]

# SVIM's people for finding candidates, for sizes, and for frequencies, in tenths.
_TENTHS = (5, 1, 4)
_SHARE_WITHIN = 0.9


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
        # Without the cut, the positive parts of the noise of many sizes would outweigh the sizes that there are.
        shares = collector.estimate(np.arange(1, most + 1), consistency="base_cut").value
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
