"""Audits: empirical lower bounds on ε, what an attacker really achieves against a mechanism.

:mod:`~dpsketch.audit.bounds` turns runs on two neighbouring datasets into a bound. :mod:`~dpsketch.audit.grid` attacks
every kind that adds noise, by the tables of two neighbours and the noise that was drawn; the laws of names, rounds,
flipped bits, quantiles, moments and local reports have an attack each, and :mod:`~dpsketch.audit.sampled` attacks
without a law. :mod:`~dpsketch.audit.table` lists and runs them all. Claims are read from the sentence that a release
prints.
"""

from dpsketch.audit.bounds import Audit, epsilon_lower_bound, lower_bound_from_outputs, lower_bound_from_scores
from dpsketch.audit.findings import Claim, Finding, Mechanism
from dpsketch.audit.table import Report, audit_mechanisms, known_mechanisms

__all__ = [
    "Audit", "Claim", "Finding", "Mechanism", "Report", "audit_mechanisms", "epsilon_lower_bound", "known_mechanisms",
    "lower_bound_from_outputs", "lower_bound_from_scores",
]  # fmt: skip
