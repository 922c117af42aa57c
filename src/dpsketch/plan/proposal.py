"""What a plan is asked and what it answers, the planner of every kind, and kinds beside each other.

How long counting will take is found out by counting for a moment.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from dpsketch import privacy
from dpsketch.errors import DpsketchError, InvalidInput
from dpsketch.numbers import hold_real, hold_whole, number_text, real_number, whole_number
from dpsketch.privacy import Unit
from dpsketch.sketches.kinds import KINDS
from dpsketch.sketches.weights import guessed_counts

__all__ = [
    "PLANNED", "QUESTIONS", "Amount", "BudgetArguments", "Comparison", "Guess", "Proposal", "Shape", "compare",
    "out_of_reach", "propose", "proposed", "require_reach", "seconds_for",
]  # fmt: skip

Shape = dict[str, int | float | str]

# What a kind's predicted error is the error of.
_ERROR_OF = {
    "histogram": "a listed key's count, root mean square",
    "histogram-votes": "a listed key's count, root mean square",
    "sparse": "the estimate of a mid-sized count, standard deviation",
    "moment": "the estimated moment, standard deviation",
    "density": "a kernel sum, standard deviation at most",
    "distinct": "the number of distinct keys, standard deviation",
    "counts": "a key's estimate, root mean square",
    "heavy": "a listed key's estimate, standard deviation",
    "ranges": "a rank, root mean square; collisions at their largest",
}


class BudgetArguments(TypedDict):
    """A budget as ``release`` takes it."""

    epsilon: float | None
    delta: float | None
    rho: float | None


@dataclass(frozen=True, slots=True)
class Guess:
    """How the data may look: records over distinct keys, the i-th in proportion to i^-skew. Public knowledge only.

    Attributes
    ----------
    records : float
        How many records there may be.
    keys : int
        How many distinct keys.
    skew : float
        Zipf's exponent: 0 where all keys are alike, about 1 for words, pages and products.
    users : float, optional
        Of how many users the records are. By default each user fills the unit's bound on keys.
    """

    records: float
    keys: int
    skew: float
    users: float | None = None

    def __post_init__(self) -> None:
        hold_real(self, "records", "skew")
        hold_real(self, "users", optional=True)
        hold_whole(self, "keys")
        if self.users is not None and not 1 <= self.users <= self.records:
            raise InvalidInput("users must be at least 1, and no more than the records.")

    @property
    def counts(self) -> npt.NDArray[np.float64]:
        """The counts of all keys, largest first."""
        return guessed_counts(self.records, self.keys, self.skew, None)


@dataclass(frozen=True, slots=True)
class Amount:
    """The budget of the planned release, and whose presence it hides.

    Attributes
    ----------
    unit : Unit
        The unit of privacy.
    epsilon, delta, rho : float or None
        The budget, as a release takes it.
    """

    unit: Unit
    epsilon: float | None = None
    delta: float | None = None
    rho: float | None = None

    def __post_init__(self) -> None:
        hold_real(self, "epsilon", "delta", "rho", optional=True)
        privacy.Budget(self.epsilon, self.delta, self.rho)

    @property
    def budget(self) -> BudgetArguments:
        """The budget itself, as ``release`` takes it."""
        return {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho}


@dataclass(frozen=True, slots=True)
class Proposal:
    """A shape, and what it is expected to be worth.

    Attributes
    ----------
    kind : str
        The kind of sketch.
    shape : dict
        Arguments of the sketch (and options of ``dpsketch run``).
    budget : dict
        The budget it was planned for.
    error : float
        The predicted error.
    error_of : str
        What that is the error of.
    memory : int
        Bytes of the sketch while it counts.
    seconds : float
        Time to count the guessed records on one core of this machine, as measured on a few of them.
    also : dict
        Further figures, by name.
    notes : tuple of str
        What else to know.
    needs_list : bool
        Whether the release must be given a public list of keys.
    """

    kind: str
    shape: Shape
    budget: BudgetArguments
    error: float
    error_of: str
    memory: int
    seconds: float
    also: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    needs_list: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the proposal as JSON-ready values."""
        return {**asdict(self), "notes": list(self.notes)}


def proposed(
    kind: str, sketch: Any, amount: Amount, guess: Guess, shape: Shape, error: float, *, error_of: str = "",
    dim: int | None = None, memory: int | None = None, **more: Any,
) -> Proposal:  # fmt: skip
    """Return the proposal of an empty sketch, which is timed and used up."""
    room = sketch.spec.memory if memory is None else memory
    seconds = seconds_for(sketch, guess.records, dim=dim)
    return Proposal(kind, shape, amount.budget, error, error_of or _ERROR_OF[kind], room, seconds, **more)


def require_reach(target: float | None, error: float, where: str) -> None:
    """Refuse a wanted error that is below the only one that can be had."""
    if target is not None and error > target:
        raise out_of_reach(target, error, where)


def out_of_reach(target: float, least: float, where: str) -> InvalidInput:
    """Return the refusal for a wanted error below what can be had."""
    return InvalidInput(
        f"no shape reaches an error of {target:g}: the least is about {least:.3g}, {where}. Allow a larger error, more "
        "memory or a larger budget."
    )


_ENOUGH_SECONDS = 0.05
_MOST_RECORDS = 1 << 20


def seconds_for(sketch: Any, records: float, *, dim: int | None = None) -> float:
    """Return about how many seconds so many records take, from batches that grow until the clock can tell.

    Parameters
    ----------
    sketch : sensitive sketch
        An empty one, which is used up.
    records : float
        How many records to predict for.
    dim : int, optional
        Coordinates of a point, where the sketch counts points; otherwise keys are integers, or texts where the
        spec says so.
    """
    unit = sketch.spec.unit
    _timed(sketch, unit, 0, 64, dim)  # the first batch compiles
    batch, first = 256, 64
    while True:
        spent = _timed(sketch, unit, first, batch, dim)
        if spent >= _ENOUGH_SECONDS or batch >= _MOST_RECORDS:
            return float(spent / batch * records)
        first += batch
        batch *= 4


def _timed(sketch: Any, unit: Any, first: int, batch: int, dim: int | None) -> float:
    order = np.arange(first, first + batch)
    if dim is None:
        # Of an ordered domain no value may lie outside.
        things: Any = order * 2654435761 % min(65521, 1 << getattr(sketch.spec, "bits", 16))
        start = getattr(sketch.spec, "start", 0)
        things = things + start if start < 1 << 62 else things.astype(np.uint64) + np.uint64(start)
        if sketch.spec.key_type == "text":
            things = [str(key) for key in things]
    else:
        things = np.sin(np.outer(order, np.arange(1, dim + 1)))
    extra = {"users": first + np.arange(batch) // unit.max_keys} if unit.level == "user" else {}
    began = time.perf_counter()
    sketch.update(things, **extra)
    return time.perf_counter() - began


DEFAULT_MEMORY = 1 << 22


def propose(
    kind: str,
    amount: Amount,
    guess: Guess,
    *,
    target_error: float | None = None,
    memory: int | None = None,
    threshold: float | None = None,
    key_bits: int | None = None,
    key_bytes: int | None = None,
    p: float | None = None,
    dim: int = 2,
    similarity: float = 0.1,
    bits: int = 32,
    start: int = 0,
    listed: bool = False,
    quantiles: Sequence[Any] | None = None,
    columns: Sequence[Any] | None = None,
) -> Proposal:
    """Propose the smallest shape that reaches a wanted error, from a guess at the data. Nothing is read or spent.

    Parameters
    ----------
    kind : str
        One of :data:`PLANNED`.
    amount : Amount
        Budget and unit of the release.
    guess : Guess
        How the data may look.
    target_error : float, optional
        The wanted error, in records. None: nearly the least that the memory allows.
    memory : int, optional
        The most bytes that the sketch may take while it counts. By default 4 MiB for what has a size to choose; a
        histogram takes what its keys take, and named quantiles what they need.
    threshold, key_bits, key_bytes : optional
        heavy: the threshold that will be asked, and the length of keys (64 bits unless given).
    p : float, optional
        moment: the exponent.
    dim, similarity
        density: coordinates, and a guess at the mean similarity of the records to a query point.
    bits, start : int
        ranges: values lie in [start, start + 2^bits).
    listed : bool
        histogram, table: whether a public list of all keys, or groups, will be given.
    quantiles : sequence of numbers, optional
        ranges: all that will be asked, if it is a few quantiles. The proposal names them where that does better than a
        tree, which answers any, and says so.
    columns : sequence of Column
        table: what to compute for each group, as in ``[dps.count(), dps.mean("amount", bounds=(0, 100))]``. The keys of
        the guess are the groups.

    Accuracy
    --------
    For counts the proposal is rehearsed: tables of the guessed data, with noise of the very law, are asked. If the
    guess is right, the error measured afterwards is within 20% of it, and so are the names that a histogram finds.
    Densities and ranges are given a bound instead.

    Examples
    --------
    >>> from dpsketch.privacy import per_record
    >>> found = propose("distinct", Amount(per_record(), 1.0, 1e-6), Guess(1e6, 50_000, 1.0), target_error=1_000)
    >>> found.shape, round(found.error)
    ({'buckets': 2048}, 733)
    """
    reals = {"target_error": target_error, "threshold": threshold, "p": p, "similarity": similarity}
    wholes = {"memory": memory, "key_bits": key_bits, "key_bytes": key_bytes, "dim": dim, "bits": bits, "start": start}
    own: dict[str, Any] = {
        **{name: None if each is None else real_number(name, each) for name, each in reals.items()},
        **{name: None if each is None else whole_number(name, each) for name, each in wholes.items()},
        "listed": listed, "quantiles": quantiles, "columns": columns,
    }  # fmt: skip
    wanted, limit = own.pop("target_error"), own["memory"]
    if wanted is not None and not (math.isfinite(wanted) and wanted > 0):
        raise InvalidInput("target_error must be a positive number.")
    if limit is not None and limit < 4096:
        raise InvalidInput("memory must be at least 4096 bytes.")
    own |= {"limit": limit, "memory": DEFAULT_MEMORY if limit is None else limit}
    row = KINDS.get(kind)
    if row is None or kind not in planned():
        raise InvalidInput(f"there are plans for {', '.join(planned())}, not for {kind!r}.")
    if row.plan is None:
        spec = row.spec(unit=amount.unit)
        error = spec.preview(**amount.budget).predicted_error
        return Proposal(kind, {}, amount.budget, error, "an answer", spec.memory, 0.0)
    taken = inspect.signature(row.plan).parameters
    chosen = {name: value for name, value in own.items() if name in taken}
    proposal: Proposal = row.plan(amount, guess, target_error=wanted, **chosen)
    return proposal


def planned() -> tuple[str, ...]:
    """Return the names of the kinds that can be planned."""
    return tuple(kind.name for kind in KINDS.values() if kind.planned)


PLANNED = planned()


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
