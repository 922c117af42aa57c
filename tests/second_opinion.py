"""A second opinion on what a release promises, from a record of what it drew and from what it printed.

Nothing here is the library's: how far a unit moves each part is worked out once more from the published spec, the unit
and the promise are read from the printed sentence, and δ is computed by formulas of its own, in logarithms. A record is
plain values: the kind, the spec, each draw with its law and size, and the sentence.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from scipy.optimize import brentq
from scipy.special import log_ndtr

_SENTENCE = re.compile(
    r"(?:ρ = (?P<rho>\S+) zero-concentrated, hence )?ε = (?P<epsilon>[^,\s]+)(?:, δ = (?P<delta>[^,\s]+))?, for each "
    r"(?P<level>record|user)(?: with all their records)? (?P<change>added or removed|replaced by another)"
    r"(?: \((?:(?:at most (?P<keys>\d+) keys?, )?weight at most (?P<weight>[^\s)]+)|"
    r"counted in at most (?P<groups>\d+) groups?\))|\.)"
)


@dataclass(frozen=True)
class Draw:
    """One draw: its law by name, the law's numbers, and how many values were drawn."""

    law: str
    numbers: dict[str, Any]
    size: int = 0


@dataclass(frozen=True)
class Record:
    """All that was drawn for a release, and all that is public of it."""

    kind: str
    spec: dict[str, Any]
    draws: list[Draw]
    words: str
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Promise:
    """What a sentence says."""

    epsilon: float
    delta: float
    level: str
    replaced: bool
    keys: int
    weight: float

    @classmethod
    def read(cls, words: str) -> Promise:
        """Read a printed guarantee."""
        found = _SENTENCE.match(words)
        if found is None:
            raise ValueError("this sentence promises nothing")
        return cls(
            float(found["epsilon"]),
            float(found["delta"] or 0),
            found["level"],
            found["change"] == "replaced by another",
            int(found["keys"] or found["groups"] or 1),
            float(found["weight"] or 1),
        )

    def is_for(self, unit: dict[str, Any]) -> bool:
        """Whether the sentence speaks of the unit that the spec has."""
        stated = (self.level, self.replaced, self.keys)
        same = stated == (unit["level"], unit["neighbours"] == "replace", unit["max_keys"])
        return same and math.isclose(self.weight, unit["max_weight"], rel_tol=1e-5)


# How much is spent: μ² of Gaussian noise, and ε of all the rest, with its δ.


@dataclass(frozen=True)
class Spent:
    """What draws come to, for one unit."""

    square: float = 0.0
    pure: float = 0.0
    delta: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.square + other.square, self.pure + other.pure, self.delta + other.delta)

    def epsilon(self, delta: float) -> float:
        """The ε at a δ."""
        left = delta - self.delta
        if left < -1e-18:
            return math.inf
        return self.pure + gaussian_epsilon(math.sqrt(self.square), left)


def gaussian_log_delta(epsilon: float, mu: float) -> float:
    """ln of Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ)."""
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    if second >= first:
        return -math.inf
    return first + math.log1p(-math.exp(second - first))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The least ε of Gaussian noise with this μ at a δ."""
    if mu == 0:
        return 0.0
    if delta <= 0:
        return math.inf
    goal = math.log(delta)
    if gaussian_log_delta(0.0, mu) <= goal:
        return 0.0
    high = mu * (mu / 2 + math.sqrt(-2 * goal)) + 1e-9
    return float(brentq(lambda epsilon: max(gaussian_log_delta(epsilon, mu), -1e6) - goal, 0.0, high, xtol=1e-13))


def additive(draw: Draw, l1: float, l2: float) -> Spent:
    """What a table that one unit moves so far costs under this noise."""
    if draw.law == "gaussian":
        return Spent(square=(l2 / draw.numbers["sigma"]) ** 2)
    if draw.law == "laplace":
        return Spent(pure=l1 / draw.numbers["scale"])
    raise ValueError("this is no additive noise")


# How far one unit moves each part.


def _table(rows: int, width: int, promise: Promise, units: int) -> tuple[float, float]:
    """A CountSketch: L1 and L2. A user's own table is clipped just above its root mean square; squares are whole."""
    times = 2 if promise.replaced else 1
    if promise.level == "record":
        return times * units * rows, times * units * math.sqrt(rows)
    mean = units**2 * rows * promise.keys
    clip = min(math.floor(mean * (1 + 3 * math.sqrt(2 / (rows * width))) + 1e-9), units**2 * rows * promise.keys**2)
    return times * units * rows * promise.keys, times * math.sqrt(clip)


def _units(promise: Promise, spec: dict[str, Any]) -> int:
    return math.floor(promise.weight / spec["grid"] + 1e-9)


def _counts(record: Record, promise: Promise) -> Spent:
    (draw,) = record.draws
    spec = record.spec
    _whole(draw, spec["rows"] * spec["width"])
    return additive(draw, *_table(spec["rows"], spec["width"], promise, _units(promise, spec)))


def _pan_private(record: Record, promise: Promise) -> Spent:
    """State and publication: one record is in one of the two."""
    state, publication = record.draws
    alone = [_counts(Record("", record.spec, [draw], ""), promise) for draw in (state, publication)]
    return max(alone, key=lambda spent: (spent.square, spent.pure))


def _continual(record: Record, promise: Promise) -> Spent:
    """A record moves the publications by a column of the design, found by publishing one record of the first day.

    Of a tree it is in one node of every height. What floors may add is taken as it is stated: a thousandth or so.
    """
    spec, column = record.spec, record.more["column"]
    l1, l2 = _table(spec["rows"], spec["width"], promise, _units(promise, spec))
    if len({str(draw.numbers) for draw in record.draws}) != 1 or len(record.draws) != record.more["tables"]:
        raise ValueError("not every publication was drawn once, with one law")
    return additive(record.draws[0], sum(column) * l1, math.sqrt(sum(each**2 for each in column)) * l2)


def _heavy(record: Record, promise: Promise) -> Spent:
    total, dense, *inner, leaf = record.draws
    spec, units, times = record.spec, _units(promise, record.spec), 2 if promise.replaced else 1
    cells, most = spec["rows"] * spec["width"], promise.keys * _units(promise, record.spec)
    _whole(total, 1)
    _whole(leaf, cells)
    bound = _table(spec["rows"], spec["width"], promise, units)
    spent = additive(total, most, most)
    # The only cell of a level of one prefix moves from one count to another one.
    both = 1 if dense.size == 1 else times
    spent += additive(dense, both * most, units * math.sqrt(both * promise.keys))
    spent += additive(leaf, *bound)
    for above in inner:
        tables = above.size // cells
        _whole(above, tables * cells)
        for _ in range(tables):
            spent += additive(above, *bound)
    return spent


def _ranges(record: Record, promise: Promise) -> Spent:
    root, dense, *tables = record.draws
    spec, times = record.spec, 2 if promise.replaced else 1
    most = promise.keys * _units(promise, spec)
    first = spec["bits"] % spec["level_bits"] or spec["level_bits"]
    depths = list(range(first, spec["bits"] + 1, spec["level_bits"]))
    levels, left = 0, dense.size
    while left > 0:
        left -= 1 << depths[levels]
        levels += 1
    if left:
        raise ValueError("not every cell of a level was drawn")
    spent = additive(root, most, most)
    for _ in range(levels):
        spent += additive(dense, times * most, math.sqrt(times) * most)
    for table in tables:
        _whole(table, (len(depths) - levels) * spec["rows"] * spec["width"])
        for _ in range(len(depths) - levels):
            spent += additive(table, times * most * spec["rows"], times * most * math.sqrt(spec["rows"]))
    return spent


def _density(record: Record, promise: Promise) -> Spent:
    table, *count = record.draws
    spec, times = record.spec, 2 if promise.replaced else 1
    rows = spec["rows"] if spec["placement"] == "every_row" else 1
    _whole(table, spec["rows"] * spec["width"])
    spent = additive(table, times * promise.keys * rows, promise.keys * math.sqrt(times * rows))
    for draw in count:
        _whole(draw, 1)
        spent += additive(draw, promise.keys, promise.keys)
    return spent


def _distinct(record: Record, promise: Promise) -> Spent:
    (draw,) = record.draws
    _whole(draw, 1)
    return additive(draw, promise.keys, promise.keys)


def _bitmap(record: Record, promise: Promise) -> Spent:
    """Ones are fair coins, zeros ones with probability q: so many bits are set, and as many cleared."""
    (draw,) = record.draws
    flip = draw.numbers["threshold"] / 2**64
    loss = max(math.log(0.5 / flip), math.log((1 - flip) / 0.5))
    if promise.replaced:
        loss = math.log(0.5 / flip) + math.log((1 - flip) / 0.5)
    return Spent(pure=promise.keys * loss)


def _sparse(record: Record, promise: Promise) -> Spent:
    """ALP by the odds of an unflipped bit and the columns that a unit takes; the threshold by its noise and cutoff."""
    (draw,) = record.draws
    units, times = _units(promise, record.spec), 2 if promise.replaced else 1
    entries, alpha = times * promise.keys, draw.numbers["alpha"]
    step = alpha * units * draw.numbers["scale"] / 2**48
    whole = math.floor(step / alpha)
    spent = Spent(pure=entries * (whole * math.log1p(alpha) + math.log1p(step - alpha * whole)))
    if draw.numbers["rule"] is not None:
        scale = draw.numbers["noise"]
        spent += Spent(pure=entries * units / scale)
        if draw.numbers["rule"] == "stability":
            reached = math.exp(-(draw.numbers["cutoff"] - units) / scale) / (1 + math.exp(-1 / scale))
            spent += Spent(delta=-math.expm1(promise.keys * math.log1p(-reached)))
    return spent


def _moment(record: Record, promise: Promise) -> Spent:
    """Coordinates whose scale grows by at most r = 1 + Δ/floor lose at most ln r/p each."""
    spent = Spent()
    for draw in record.draws:
        p, height = draw.numbers["p"], draw.numbers["height"]
        changed = promise.keys * promise.weight**p
        spent += Spent(pure=record.spec["size"] * math.log1p(changed / height) / p)
    return spent


def _groups(record: Record, promise: Promise) -> Spent:
    """A table of a public list: a row for each group and one for all others, of which a unit moves some."""
    rows, times, (*first, last) = record.more["groups"] + 1, 1 + promise.replaced, record.draws
    if last.law == "gaussian":
        draws = record.draws[1:] if promise.level == "user" else record.draws
        single = sum(draw.numbers["sigma"] ** -2 for draw in (*record.draws[: promise.level == "user"], *draws[1::2]))
        head, columns = promise.keys / draws[0].numbers["sigma"] ** 2, 0.0
        for draw, size in zip(draws, [rows, *[281, 0] * len(draws)], strict=False):
            levels = 5 if draw.size == 31 * rows else 1
            _whole(draw, size or rows * (2**levels - 1))
            columns += 0 if size else promise.keys * levels * (2**28 / draw.numbers["sigma"]) ** 2
        return Spent(square=times * single + (max(2 * (head + columns), 4 * columns) if times == 2 else head + columns))
    *shapes, cells = first
    linear = math.log2(cells.size / rows)
    corner = 2 ** (30 // linear * linear) if linear else 1
    pure = promise.keys * (corner / cells.numbers["scale"] + last.numbers["mass"] * last.numbers["loss"])
    for draw in shapes:
        _whole(draw, 281)
    return Spent(pure=times * (pure + sum(1 / draw.numbers["scale"] for draw in shapes)))


def _whole(draw: Draw, size: int) -> None:
    if draw.size != size:
        raise ValueError("a part was not drawn number by number")


_KINDS = {
    "counts": _counts,
    "pan-private": _pan_private,
    "continual": _continual,
    "heavy": _heavy,
    "ranges": _ranges,
    "density": _density,
    "distinct": _distinct,
    "distinct-set": _distinct,
    "distinct-bitmap": _bitmap,
    "sparse": _sparse,
    "table": _groups,
    "moment": _moment,
    "moments": _moment,
}


def opinion(record: Record) -> tuple[float, float]:
    """The ε that was really spent at the δ that is printed, and the ε that is printed."""
    promise = Promise.read(record.words)
    if not promise.is_for(record.spec["unit"]):
        raise ValueError("the sentence speaks of another unit than the spec")
    return _KINDS[record.kind](record, promise).epsilon(promise.delta), promise.epsilon
