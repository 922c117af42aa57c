"""Plan a release before anything is read or spent: which shape reaches a wanted error, and what it costs."""

from dpsketch.plan.bounds import BoundCurve, error_by_bound
from dpsketch.plan.comparison import QUESTIONS, Comparison, compare
from dpsketch.plan.proposal import PLANNED, propose
from dpsketch.plan.values import Amount, Guess, Proposal

__all__ = [
    "PLANNED",
    "QUESTIONS",
    "Amount",
    "BoundCurve",
    "Comparison",
    "Guess",
    "Proposal",
    "compare",
    "error_by_bound",
    "propose",
]
