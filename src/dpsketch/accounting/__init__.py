"""What releases cost together, how much noise a budget asks for, and what it means in words."""

from typing import TYPE_CHECKING

from dpsketch import lazy

if TYPE_CHECKING:
    from dpsketch.accounting.composition import compose, fits, rho_of
    from dpsketch.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu, zcdp_mu
    from dpsketch.accounting.odds import posterior, words
    from dpsketch.accounting.tally import Costs, check_cost
else:
    __getattr__ = lazy.names(
        __name__, composition="compose fits rho_of",
        gaussian="gaussian_delta gaussian_epsilon gaussian_mu zcdp_mu", odds="posterior words",
        tally="Costs check_cost",
    )  # fmt: skip

__all__ = [
    "Costs",
    "check_cost",
    "compose",
    "fits",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "posterior",
    "rho_of",
    "words",
    "zcdp_mu",
]
