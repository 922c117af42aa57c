"""The kinds that answer one question, beside each other: what each is predicted to be worth, and which to use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from dpsketch.errors import DpsketchError, InvalidInput
from dpsketch.numbers import number_text
from dpsketch.plan.proposal import propose
from dpsketch.plan.values import Amount, Guess, Proposal
from dpsketch.sketches.kinds import KINDS

__all__ = ["QUESTIONS", "Comparison", "compare"]

QUESTIONS = tuple(dict.fromkeys(question for kind in KINDS.values() for question in kind.questions))

# Of two kinds that find almost as many names, the one with the smaller error is the better one.
_ALMOST = 0.98


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the kinds that answer one question are expected to be worth, for one shape of data.

    Attributes
    ----------
    question : str
        One of :data:`QUESTIONS`.
    proposals : tuple of Proposal
        One a kind, the best first.
    refused : dict
        Why a kind cannot be planned for this budget, by name.
    why : str
        Why the first is the best.
    """

    question: str
    proposals: tuple[Proposal, ...]
    refused: dict[str, str]
    why: str

    @property
    def best(self) -> Proposal:
        """The one to use."""
        return self.proposals[0]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON-ready values."""
        return {
            "question": self.question,
            "use": self.best.kind,
            "why": self.why,
            "proposals": [{**each.to_json(), "suits": KINDS[each.kind].suits} for each in self.proposals],
            "refused": self.refused,
        }


def compare(question: str, amount: Amount, guess: Guess, *, listed: bool = False, **wishes: Any) -> Comparison:
    """Plan every kind that answers a question, and say which to use. Nothing is read or spent.

    Parameters
    ----------
    question : str
        One of :data:`QUESTIONS`: "keys", for which keys there are and how often each occurs.
    amount, guess
        As :func:`~dpsketch.plan.propose` takes them.
    listed : bool
        Whether a public list of all keys will be given. Without one, what finds the most names is the best.
    **wishes
        Further arguments of :func:`~dpsketch.plan.propose`.

    Examples
    --------
    >>> from dpsketch.privacy import per_record
    >>> found = compare("keys", Amount(per_record(), 1.0, 1e-6), Guess(20_000, 1_000, 1.0))
    >>> found.best.kind
    'histogram'
    """
    if question not in QUESTIONS:
        known = " or ".join(QUESTIONS)
        raise InvalidInput(
            f"{question!r} is no question for which kinds are compared: ask for {known}, or name a kind."
        )
    proposals, refused = [], {}
    for kind in KINDS.values():
        if question not in kind.questions:
            continue
        try:
            proposals.append(propose(kind.name, amount, guess, listed=listed, **wishes))
        except DpsketchError as error:
            refused[kind.name] = str(error)
    if not proposals:
        raise InvalidInput(f"no kind can be planned like this: {' '.join(refused.values())}")
    if listed:
        ordered = sorted((_with_list(each) for each in proposals), key=lambda each: each.error)
    else:
        most = max(each.also.get("found", 0.0) for each in proposals)
        ordered = sorted(proposals, key=lambda each: _rank(each, most))
    return Comparison(question, tuple(ordered), refused, _why(ordered, listed))


def _with_list(proposal: Proposal) -> Proposal:
    """Return a proposal as it is worth with a list of all keys: joint decoding, where there is such a thing."""
    return replace(proposal, error=proposal.also.get("decoded_error", proposal.error))


def _rank(proposal: Proposal, most: float) -> tuple[int, float, float]:
    """Return what proposals are sorted by: those that find almost the most names by error, then by names found.

    Of the former, buckets come last: where all keys can be held, nothing is gained by letting them vote.
    """
    found = proposal.also.get("found")
    if found is None:
        return 2, 0.0, proposal.error
    voting = float("max_counters" in proposal.shape)
    return (0, voting, proposal.error) if found >= _ALMOST * most else (1, -found, proposal.error)


def _why(ordered: list[Proposal], listed: bool) -> str:
    best = ordered[0]
    found = best.also.get("found")
    if listed or found is None:
        rivals = [each for each in ordered[1:] if listed or "found" not in each.also]
        need = "" if listed else "no kind finds names at this budget; with a public list of the keys "
        if not rivals:
            return f"{need}its error is {number_text(best.error)}."
        return (
            f"{need}it has the least error for keys of a list: {number_text(best.error)}, against "
            f"{number_text(rivals[0].error)} of {rivals[0].kind}."
        )
    words = f"it names about {number_text(found)} keys, with an error of {number_text(best.error)} in a count"
    others = [each for each in ordered[1:] if "found" in each.also]
    if not others:
        return f"{words}; no other kind finds names by itself."
    other = others[0]
    return f"{words}; the next, {other.kind}, about {number_text(other.also['found'])} with {number_text(other.error)}."
