"""Subset local hashing: the recommended protocol for sets of items over a domain too large to list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsketch.local.arguments import LARGEST_SEED
from dpsketch.local.hashed import FIELDS, LARGEST_POOL, LARGEST_WIDTH, Hashing, optimal_width
from dpsketch.local.intervals import Frequencies, support_variance
from dpsketch.local.odds import odds_below
from dpsketch.local.protocol import LocalProtocol, local_guarantee
from dpsketch.local.sets import People
from dpsketch.local.tallies import KeptReports
from dpsketch.local.wire import Columns, Field
from dpsketch.numbers import hold_whole
from dpsketch.privacy import Guarantee, per_user

__all__ = ["SubsetHashing"]


@dataclass(frozen=True)
class SubsetHashing(LocalProtocol):
    """People report one bucket of a random hash of their whole set.

    Parameters
    ----------
    epsilon : float
        What one report may reveal, between 0.001 and 20.
    max_items : int
        L: of a larger set a random subset of this size is reported about. See :mod:`dpsketch.local.set_size` for how to
        choose it, and what it loses.
    width : int, optional
        Buckets; the best for rare keys if not given.
    seeds : int, optional
        Size of the public pool of hash functions, at most 65536. The collector's time grows with it. A smaller pool
        adds to the variance of a key about Σf²·g/(seeds·(g−L)²), f the shares of the other keys and g the width,
        however many people report.
    seed : int, optional
        Which pool. Public.
    key_type : {"int", "text"}, optional
        What keys must be.

    Privacy
    -------
    ε-locally differentially private: for *any* two sets, whatever their sizes, and any report, the two probabilities of
    the report differ by a factor of at most e^ε, exactly as the program draws them (:mod:`dpsketch.local.hashed` has
    the proof). It costs ε a report.

    Accuracy
    --------
    Unbiased for the share of people who hold a key and whose set is within the cap; a person with s > L items counts
    L/s. n·Var at share 0 is (g−1)(g+L(E−1))²/((E−1)²(g−L)²), g = ``width``, E = e^ε.

    References
    ----------
    Wang et al., *Set-valued data publication with local privacy* (PVLDB 2020) has the wheel on a continuous circle;
    this is its discretisation by a public pool of hash functions. For ``max_items=1`` it is optimal local hashing
    (Wang, Blocki, Li and Jha, USENIX Security 2017).

    Examples
    --------
    >>> protocol = SubsetHashing(epsilon=1.0, max_items=26)
    >>> protocol.width
    130
    >>> reports = protocol.report([["a", "b"], ["b"], []])
    >>> reports.column_names, reports.num_rows
    (['id', 'seed', 'bucket'], 3)
    """

    name: ClassVar[str] = "subset-hashing"

    max_items: int
    width: int | None = None
    seeds: int = 4096
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        hold_whole(self, "max_items", low=1, high=2**16)
        hold_whole(self, "seeds", low=1, high=LARGEST_POOL)
        hold_whole(self, "seed", low=0, high=LARGEST_SEED)
        if self.width is None:
            object.__setattr__(self, "width", optimal_width(float(odds_below(self.epsilon)), self.max_items))
        hold_whole(self, "width", low=self.max_items + 1, high=LARGEST_WIDTH)

    @property
    def hashing(self) -> Hashing:
        """The protocol's arithmetic."""
        assert self.width is not None  # set above
        return Hashing(odds_below(self.epsilon), self.max_items, self.width, self.seeds, self.seed)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a report."""
        return FIELDS

    @property
    def guarantee(self) -> Guarantee:
        """What one report promises."""
        words = f"subset local hashing, {self.max_items} items into {self.width} buckets"
        return local_guarantee(self.epsilon, per_user(self.max_items, neighbours="replace"), words)

    def randomise(self, people: People) -> Columns:
        """Draw everyone's hash function and bucket."""
        return self.hashing.draw(people)

    def plausible(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Say which reports have values in range."""
        return self.hashing.plausible(columns)

    def tally(self) -> KeptReports:
        """Keep the reports: six bytes each."""
        return KeptReports(self.fields, self.plausible)

    def frequencies(
        self, tally: Any, users: int, fingerprints: npt.NDArray[np.uint64], confidence: float
    ) -> Frequencies:
        """Estimate the share of people who hold each key."""
        return self.hashing.frequencies(tally.columns(), users, fingerprints, confidence)

    def variance(self, frequency: float, users: int) -> float:
        """Predict the variance of an estimate, without what the pool adds."""
        return support_variance(frequency, users, self.hashing.p_true, self.hashing.p_false)
