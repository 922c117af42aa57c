"""Audits: empirical lower bounds on ε, what an attacker really achieves against a mechanism.

:mod:`~dpsketch.audit.core` turns runs on two neighbouring datasets into a bound, :mod:`~dpsketch.audit.distinguishers`
are the attackers, :mod:`~dpsketch.audit.table` lists every mechanism of the library with the neighbours that are worst
for it, and :func:`audit_mechanisms` runs them. Where the law of what is drawn is known, :mod:`~dpsketch.audit.grid` and
:mod:`~dpsketch.audit.flips` go through both units, both relations and several pairs of neighbours. Claims are read from
the sentence that a release prints.
"""

from dpsketch.audit.core import (
    Audit,
    epsilon_lower_bound,
    likelihood_ratio,
    lower_bound_from_outputs,
    lower_bound_from_scores,
)
from dpsketch.audit.mechanism import Claim, Finding, Mechanism
from dpsketch.audit.report import Report, audit_mechanisms, known_mechanisms

__all__ = [
    "Audit",
    "Claim",
    "Finding",
    "Mechanism",
    "Report",
    "audit_mechanisms",
    "epsilon_lower_bound",
    "known_mechanisms",
    "likelihood_ratio",
    "lower_bound_from_outputs",
    "lower_bound_from_scores",
]
