"""All mutants, in the order of the path: what is drawn, what is paid, what goes in, what is answered."""

from __future__ import annotations

from tests.mutants import (
    answers,
    audited,
    budgets,
    classes,
    contributions,
    grouped,
    kernels,
    names,
    releases,
    service,
    statements,
    streams,
    tables,
    views,
)
from tests.mutants.gate import Mutant

__all__ = ["MUTANTS"]

MUTANTS: list[Mutant] = [
    *releases.COUNTS,
    *releases.TREES,
    *releases.DENSITIES,
    *releases.OTHERS,
    *classes.CLASSES,
    *streams.DESIGNS,
    *streams.SEIZED,
    *streams.STATE,
    *streams.KINDS,
    *names.HISTOGRAMS,
    *names.BOUNDS,
    *names.VOTES,
    *names.QUANTILES,
    *grouped.GROUPED,
    *audited.AUDITED,
    *budgets.PERMITS,
    *budgets.LEDGER,
    *budgets.ACCOUNTING,
    *budgets.WORDS,
    *tables.SOURCES,
    *kernels.KERNELS,
    *kernels.READ,
    *contributions.NUMBERS,
    *contributions.USERS,
    *contributions.PARTIALS,
    *statements.STATEMENTS,
    *answers.LOCAL,
    *answers.INTERVALS,
    *service.STRANGERS,
    *views.VIEWS,
]
