"""What releases cost together, how much noise a budget asks for, and what it means in words."""

from typing import TYPE_CHECKING

from dpsketch import lazy

if TYPE_CHECKING:
    from dpsketch.accounting.composition import Costs, check_cost, compose, fits, posterior, rho_of, words
    from dpsketch.accounting.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu, zcdp_mu
else:
    __getattr__ = lazy.names(
        __name__, composition="Costs check_cost compose fits posterior rho_of words",
        gaussian="gaussian_delta gaussian_epsilon gaussian_mu zcdp_mu",
    )  # fmt: skip

__all__ = [
    "Costs", "check_cost", "compose", "fits", "gaussian_delta", "gaussian_epsilon", "gaussian_mu", "posterior",
    "rho_of", "words", "zcdp_mu",
]  # fmt: skip
