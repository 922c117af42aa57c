"""Plan a release before anything is read or spent: which shape reaches a wanted error, and what it costs."""

from dpsketch.plan.proposing import PLANNED, propose
from dpsketch.plan.values import Amount, Guess, Proposal

__all__ = ["PLANNED", "Amount", "Guess", "Proposal", "propose"]
