"""What a bound on a user's keys is worth, for a stated law of users: noise, what is cut, and both together."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from dpsketch import plots
from dpsketch.arrays import Floats
from dpsketch.errors import InvalidInput
from dpsketch.numbers import number_text, real_number
from dpsketch.plan.values import Amount, Guess
from dpsketch.privacy import Unit
from dpsketch.sketches.histogram.spec import HistogramSpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["BoundCurve", "error_by_bound"]


_BOUNDS = sorted({round(2 ** (i / 2)) for i in range(25)})
# Users that stand for all.
_PEOPLE = 4000


@dataclass(frozen=True, slots=True, eq=False)
class BoundCurve:
    """The predicted error of a count against the bound on a user's keys.

    Attributes
    ----------
    bounds : list of int
        The bounds.
    noise, cut, error : numpy.ndarray
        What noise adds, what the bound cuts, and both together: root mean squares over all keys.
    spread : float
        The law of users: the standard deviation of the logarithm of their numbers of keys.
    """

    bounds: list[int]
    noise: Floats
    cut: Floats
    error: Floats
    spread: float

    @property
    def best(self) -> int:
        """The bound with the least error."""
        return self.bounds[int(self.error.argmin())]

    def plot(self) -> Figure:
        """Draw the three against the bound."""
        figure = plots.new_figure()
        axes = figure.subplots()
        axes.plot(self.bounds, self.noise, color="black", linestyle="--", label="noise")
        axes.plot(self.bounds, self.cut, color="black", linestyle=":", label="cut by the bound")
        axes.plot(self.bounds, self.error, color="#1f4e79", linewidth=2, label="together")
        axes.axvline(self.best, color="#9db8d2", linewidth=6, zorder=0, label=f"least at {self.best}")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_ylim(bottom=float(self.error.min()) / 4)
        axes.set_xlabel("max_keys: so many keys of a user count")
        axes.set_ylabel("error of a count, root mean square")
        axes.legend(frameon=False)
        axes.set_title(f"predicted, for numbers of keys with a spread of {self.spread:g}", fontsize=9, loc="left")
        return figure

    @property
    def rows(self) -> list[list[str]]:
        """The curve as rows of a table."""
        return [
            [str(bound), *(number_text(float(each)) for each in values)]
            for bound, *values in zip(self.bounds, self.noise, self.cut, self.error, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the curve as JSON-ready values."""
        arrays = {name: getattr(self, name).tolist() for name in ("noise", "cut", "error")}
        return {"bounds": self.bounds, **arrays, "best": self.best, "spread": self.spread}


def error_by_bound(amount: Amount, guess: Guess, *, spread: float = 1.0) -> BoundCurve:
    """Predict the error of a histogram's counts for each bound on a user's keys. Nothing is read or spent.

    Parameters
    ----------
    amount : Amount
        Budget and unit; the unit's own bound is not used.
    guess : Guess
        How the data may look: ``users`` have ``records`` different keys in all.
    spread : float
        How unlike users are: their numbers of keys follow a lognormal law, and this is the standard deviation of its
        logarithm. 0: all have as many.

    Accuracy
    --------
    All keys are taken to be asked for, as a public list, and a user's keys not to depend on how many it has. Then a
    bound of m that cuts B pairs in all takes from each key in proportion to its share p, and the mean square of it
    over K keys is B²·Σp²/K.

    Examples
    --------
    >>> from dpsketch.privacy import per_user
    >>> curve = error_by_bound(Amount(per_user(1), 1.0, 1e-6), Guess(500_000, 20_000, 1.0, 50_000))
    >>> curve.best
    64
    """
    spread = float(real_number("spread", spread))
    if guess.users is None or amount.unit.level != "user":
        raise InvalidInput("an error against the bound on a user's keys needs users: say how many there may be.")
    if not 0 <= spread <= 5:
        raise InvalidInput("spread must lie between 0 and 5.")
    mean = guess.records / guess.users
    held = mean * np.exp(spread * ndtri((np.arange(_PEOPLE) + 0.5) / _PEOPLE) - spread**2 / 2)
    shares = guess.counts / guess.counts.sum()
    apart = math.sqrt(float(shares @ shares) / guess.keys)

    def unit(bound: int) -> Unit:
        return replace(amount.unit, max_keys=bound, chosen=False)

    noise = np.array([HistogramSpec(unit(bound)).law(**amount.budget, keys=()).count_error for bound in _BOUNDS])
    cut = np.array([guess.users * float(np.maximum(held - bound, 0).mean()) * apart for bound in _BOUNDS])
    return BoundCurve(list(_BOUNDS), noise, cut, np.hypot(noise, cut), spread)
