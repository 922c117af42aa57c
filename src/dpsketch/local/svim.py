"""SVIM: heavy hitters of set-valued data in phases, over a domain that can be listed; a rival, for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint
from dpsketch.local.arguments import privacy_parameter
from dpsketch.local.odds import odds_below
from dpsketch.local.protocol import LocalProtocol, local_guarantee
from dpsketch.local.rivals import PadAndSample
from dpsketch.local.sets import People, read_people
from dpsketch.local.single_item import OptimalLocalHashing
from dpsketch.local.subset_direct import SubsetDirect
from dpsketch.noise import random_below
from dpsketch.numbers import hold_whole
from dpsketch.privacy import Guarantee, per_record
from dpsketch.results import Estimates, key_list

__all__ = ["SVIM"]

# People for finding candidates, for sizes, and for frequencies, in tenths.
_TENTHS = (5, 1, 4)
_SHARE_WITHIN = 0.9


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
        return local_guarantee(self.epsilon, per_record(neighbours="replace"), "SVIM, one report in one of its phases")

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

        found = self._estimate(PadAndSample(self.epsilon, length=1), people.take(groups[0]), asked)
        best = np.argsort(-found.value, kind="stable")[: 2 * self.top]
        candidates = [asked[i] for i in best]
        held = _among(people, prints[best])

        counts = self._sizes(held.take(groups[1]), len(candidates))
        within = np.cumsum(counts) / counts.sum()
        length = int(np.searchsorted(within, _SHARE_WITHIN)) + 1
        final = self._estimate(self._last(length, candidates), held.take(groups[2]), candidates)

        # A person with more candidates than `length` reported about a part of them: scale back by the mean part.
        part = np.minimum(1.0, length / np.arange(1, len(counts) + 1))
        scale = float(counts.sum() / np.sum(counts * part))
        order = np.argsort(-final.value, kind="stable")[: self.top]
        value, low, high = (scale * each[order] for each in (final.value, final.low, final.high))
        return Estimates([candidates[i] for i in order], value, low, high, final.confidence)

    def _last(self, length: int, candidates: list[Any]) -> LocalProtocol:
        """Choose the protocol of the last phase: direct reporting for few candidates, hashing for many."""
        if len(candidates) < length * (4 * length - 1) * float(odds_below(self.epsilon)) + 1:
            return SubsetDirect(self.epsilon, max_items=length, domain=tuple(candidates))
        return PadAndSample(self.epsilon, length=length)

    def _sizes(self, people: People, most: int) -> npt.NDArray[np.float64]:
        """Estimate how many people hold 1 … ``most`` of the candidates."""
        protocol = OptimalLocalHashing(self.epsilon, key_type="int")
        sizes = np.minimum(np.diff(people.offsets), most)
        collector = protocol.collector().add(protocol.report(sizes))
        # Without the cut, the positive parts of the noise of many sizes would outweigh the sizes that there are.
        shares = collector.estimate(np.arange(1, most + 1), consistency="base_cut").value
        return shares if shares.sum() > 0 else np.ones(most)

    @staticmethod
    def _estimate(protocol: LocalProtocol, people: People, keys: list[Any]) -> Estimates:
        return protocol.collector().add(protocol.report(people)).estimate(keys)


def _among(people: People, prints: npt.NDArray[np.uint64]) -> People:
    """Return the same people with only the given keys."""
    kept = np.isin(people.prints, prints)
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
    return People(before[people.offsets], people.prints[kept])
