"""Bands whose state may be seized: what is kept for the coming days carries noise from the start.

For each of the coming days there is an accumulator, which starts from fresh noise N_s. A record of day t is added to
those of the days t, t + 1, … at once, c_0, c_1, … times; nothing else is kept of it. In the evening P_t + z_t is
published, with fresh noise z_t, and P_t is forgotten.

**Privacy**, of all publications and of the whole state at one moment together. Let N_s and z_s be rounded Gaussians of
one σ, and S = Δ·‖c‖₂.

*A record that came before that moment.* Day s was published before it: the record moves y_s by c_j·g, under
N_s + z_s. Day s comes after it: P_s was seen, moved by c_j·g, under N_s; and of y_s nothing more is learnt of the
record, as y_s − P_s is what came later and z_s. So the shifts (c_0·g, c_1·g, …) of norm S each lie under noise of at
least σ. *One that came after it* moves y_s − P_s, for the days to come, by c_j·g under z_s: again S under σ. So either
is one Gaussian mechanism of μ = S/σ, whatever the moment, also if it and the days' records are chosen by what was seen.

*A replaced record* may have been before it, and what it is replaced by after it. Then the state is moved by at most S
under N and the later publications by at most S under z: √2·S together, which is no more than is paid for, since a
replaced record costs √2·S where nothing counts downwards and 2·S elsewhere.

*One band of 1*, a single day, may have Laplace noise of one scale as well: with L1 distances in the place of norms, a
record before the moment or after it costs Δ₁ over the scale, and a replaced record at most twice as much, which is what
a replaced record pays.

*Integers are kept modulo 2⁶⁴.* Sums of integers that wrap round are those of the exact ones, reduced: a function of
what is private. Nothing here is held to a limit by what it has become, which would not be.

References
----------
Dwork, Naor, Pitassi, Rothblum and Yekhanin, *Pan-private streaming algorithms* (2010), for the model. Changed here: it
is joined with correlated noise, whose bands are what has to be kept anyway.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpsketch.arrays import Integers
from dpsketch.core.codec import stored
from dpsketch.core.move import Sensitivity
from dpsketch.laws.designs import Banded, Contribution

__all__ = ["PanPrivate"]


@stored
@dataclass(frozen=True, slots=True)
class PanPrivate(Banded):
    """Bands, kept as sums for the coming days, which a stream starts from noise.

    Accuracy
    --------
    What is published carries the noise of its accumulator and its own: √2 times that of the same bands whose state must
    be guarded. A cell of a batch is held to 2⁶¹/Σc; days of more than that in many batches wrap round.
    """

    name: ClassVar[str] = "pan-private"
    keeps_noise: ClassVar[bool] = True

    @property
    def words(self) -> str:
        """The design in a phrase."""
        days = f"correlated over {len(self.bands)} days" if len(self.bands) > 1 else "each day by itself"
        return f"{days}, in a state that may be seized once"

    @property
    def buffers(self) -> int:
        """How many tables it keeps: one for each day that a record of today enters."""
        return len(self.bands)

    def sensitivity(self, contribution: Contribution, horizon: int) -> Sensitivity:
        """Return the bound of all bands, those of days after the last as well: a seized state has them."""
        return Banded.sensitivity(self, contribution.within(horizon), horizon + len(self.bands))

    def take(self, state: Integers, records: Integers) -> None:
        """Add records of today, counted in a table, to the sums for the coming days."""
        held = np.clip(records, -self.limit, self.limit)
        for band, coming in zip(self.bands, state, strict=True):
            coming += band * held

    def step(self, state: Integers, today: Integers, day: int) -> Iterator[tuple[Hashable, Integers]]:
        """Publish the sums for today, which are then forgotten; those for the last of the coming days begin at 0."""
        self.take(state, today)
        yield day, state[0].copy()
        state[:-1] = state[1:].copy()
        state[-1] = 0

    def holds(self, state: Integers) -> bool:
        """Say yes: modulo 2⁶⁴ the noise may have left any state."""
        return True
