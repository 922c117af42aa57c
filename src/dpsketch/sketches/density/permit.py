"""A release whose budget is charged: noise may be drawn from here on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpsketch.privacy import Guarantee
from dpsketch.sketches.density.calibration import DensityNoise, Part
from dpsketch.sketches.density.private import PrivateDensity
from dpsketch.sketches.density.spec import DensitySpec
from dpsketch.sketches.releasing import charge_ledger
from dpsketch.sketches.specs import fingerprint_of

if TYPE_CHECKING:
    from dpsketch.ledger import Charge, Ledger

__all__ = ["Permit", "obtain"]


@dataclass(frozen=True, slots=True)
class Permit:
    """What was charged, the noise that was paid for, and the guarantee it gives."""

    spec: DensitySpec
    noise: DensityNoise
    guarantee: Guarantee
    charge: Charge | None

    def release(self, table: npt.NDArray[np.int64], records: int | None) -> PrivateDensity:
        """Add the tables' noise to a table and, where the part beside them is its number of records, to that.

        Privacy
        -------
        One permit serves several tables over disjoint parts of the records: a record lies in one of them only, so a
        unit moves all of them together as far as it would move a single one.
        """
        noisy = table + self.noise.table.sample(table.size).reshape(table.shape)
        if records is None or self.noise.beside is None:
            return PrivateDensity(self.spec, noisy, None, self.noise.table, None, self.guarantee, self.charge)
        count = records + int(self.noise.beside.sample(1)[0])
        return PrivateDensity(self.spec, noisy, count, self.noise.table, self.noise.beside, self.guarantee, self.charge)


def obtain(
    spec: DensitySpec,
    part: Part,
    *,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    ledger: Ledger | str | None,
    dataset: str | None,
    note: str,
    caveats: list[str | None],
) -> Permit:
    """Calibrate the noise of a release and charge its budget."""
    noise = spec.calibrated(part, epsilon, delta, rho)
    charge = charge_ledger(ledger, dataset, (noise.calibrated.cost,), spec.unit, f"{note} {fingerprint_of(spec)}")
    return Permit(spec, noise, noise.guarantee(spec.unit, " ".join(filter(None, caveats)) or None), charge)
