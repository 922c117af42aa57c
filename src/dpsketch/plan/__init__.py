"""Plan a release before anything is read or spent: which shape reaches a wanted error, and what it costs."""

from dpsketch.plan.histograms import BoundCurve, error_by_bound
from dpsketch.plan.proposal import PLANNED, QUESTIONS, Amount, Comparison, Guess, Proposal, compare, propose

__all__ = [
    "PLANNED", "QUESTIONS", "Amount", "BoundCurve", "Comparison", "Guess", "Proposal", "compare", "error_by_bound",
    "propose",
]  # fmt: skip
