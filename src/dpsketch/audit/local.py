"""Local protocols: one person's report, whatever they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsketch import local
from dpsketch.audit.bounds import LEARNERS, Outputs, Scores, known
from dpsketch.audit.findings import AuditRow, Finding, Mechanism, printed_promise
from dpsketch.local.hashed import HashedProtocol
from dpsketch.privacy import Guarantee

__all__ = ["PROTOCOLS", "REPORTS", "SVIM_PHASES", "Reported", "protocol", "svim"]

_EPSILON, _REPORTS = 1.5, 8
# So many hash functions are learned outcome by outcome.
_FEW_SEEDS = 8
_BARE = 20.0

# Each protocol that claims ε-local privacy, small enough that its reports have few outcomes, with two things to hold.
PROTOCOLS: dict[str, tuple[Callable[[float], local.LocalProtocol], Any, Any]] = {
    "subset-hashing": (lambda e: local.SubsetHashing(epsilon=e, max_items=2, width=6, seeds=2), [0, 1], [2, 3]),
    "subset-direct": (lambda e: local.SubsetDirect(epsilon=e, max_items=2, domain=4), [0, 1], [2, 3]),
    "sampled-bit": (lambda e: local.SampledBit(epsilon=e, rows=1, width=2), [0], []),
    "optimal-local-hashing": (lambda e: local.OptimalLocalHashing(epsilon=e, seeds=2), 0, 3),
    "count-mean-sketch": (lambda e: local.CountMeanSketch(epsilon=e, rows=1, width=4), 0, 1),
    "hadamard-count-mean": (lambda e: local.HadamardCountMean(epsilon=e, rows=1, width=2), 0, 1),
    "multi-pcms": (lambda e: local.MultiPCMS(epsilon=e, rows=1, width=2), list(range(20)), []),
    "pad-and-sample": (lambda e: local.PadAndSample(epsilon=e, length=1, width=4, seeds=2), [0], [3]),
    "set-sizes": (lambda e: local.SetSizes(epsilon=e, largest=2), [0], [0, 1]),
    "prefix-heavy-hitters": (
        lambda e: local.PrefixHeavyHitters(epsilon=e, max_items=1, length=1, width=4, seeds=2), ["a"], ["z"],
    ),
}  # fmt: skip


# A person who runs SVIM reports once, in one of its phases; each with its protocol and two things to hold.
SVIM_PHASES: dict[str, tuple[Callable[[local.SVIM], local.LocalProtocol], Any, Any]] = {
    "candidates": (lambda svim: svim.first_phase, [0], [3]),
    "sizes": (lambda svim: svim.size_phase, 0, 3),
    "direct": (lambda svim: svim.last_phase(2, [0, 1, 2, 3]), [0, 1], [2, 3]),
    "hashed": (lambda svim: svim.last_phase(1, list(range(40))), [0], [3]),
}


def protocol(name: str, noise: float = 1.0) -> Mechanism:
    """Two people who hold different things, by their reports. A mutant reports at a larger ε than it claims."""
    make, one, other = PROTOCOLS[name]
    return _reported(f"local-{name}", make(_EPSILON).guarantee, make(_EPSILON / noise), one, other)


def svim(phase: str, noise: float = 1.0) -> Mechanism:
    """One person's report in a phase of SVIM, under the promise that SVIM makes for all of them."""
    make, one, other = SVIM_PHASES[phase]
    drawn = make(local.SVIM(_EPSILON / noise, top=2))
    return _reported(f"svim-{phase}", local.SVIM(_EPSILON, top=2).guarantee, drawn, one, other)


def _reported(
    name: str, promise: Guarantee, drawn: local.LocalProtocol, one: Any, other: Any, pair: str = "worst"
) -> Mechanism:
    def runs(held: Any) -> Callable[[int], Outputs]:
        # Reports are drawn many at a time.
        return lambda trials: _reports(drawn, held, trials * _REPORTS)

    learners = dict(LEARNERS)
    if isinstance(drawn, HashedProtocol) and drawn.seeds > _FEW_SEEDS:
        learners["support"] = known(_support(drawn, one, other))
    return Mechanism(name, _WORDS[pair], printed_promise(promise), runs(one), runs(other), learners)


def _reports(drawn: local.LocalProtocol, held: Any, people: int) -> Outputs:
    """Return the fields of so many people's reports; the identifier is random and says nothing."""
    reports = drawn.report([held] * people)
    columns, _ = drawn.form.from_table(reports)
    if columns is None:
        raise AssertionError("a protocol does not read its own reports")
    fields = [np.asarray(value).reshape(people, -1) for key, value in columns.items() if key != "id"]
    return np.concatenate(fields, axis=1).astype(np.float64)


def _support(drawn: HashedProtocol, one: Any, other: Any) -> Callable[[Outputs], Scores]:
    """Score a report by whether its bucket is that of the one or of the other, for the hash function that it names.

    Which bucket that is, is read off reports of a protocol that hardly randomises.
    """
    changed: dict[str, Any] = {"epsilon": _BARE, "width": drawn.buckets}
    bare = replace(drawn, **changed)
    tables = []
    for held in (one, other):
        table = np.full(drawn.seeds, -1.0)
        shown = _reports(bare, held, 40 * drawn.seeds)
        table[shown[:, 0].astype(int)] = shown[:, 1]
        tables.append(table)

    def score(reports: Outputs) -> Scores:
        places = reports[:, 0].astype(int)
        found: Scores = (reports[:, 1] == tables[0][places]).astype(np.float64) - (reports[:, 1] == tables[1][places])
        return found

    return score


# Besides two things that differ most: somebody who holds nothing, where the protocol lets them; two things that are one
# to the protocol, by a bucket or by a bound on how many count; and somebody who holds far more than that.
_HELD: dict[str, dict[str, tuple[Any, Any]]] = {
    "subset-hashing": {"null": ([], [0, 1]), "colliding": ([0, 1], [1, 0]), "clipped": (list(range(40)), [0])},
    "subset-direct": {"null": ([], [0, 1]), "colliding": ([0, 1], [1, 0]), "clipped": ([0, 1, 2, 3], [0])},
    "sampled-bit": {"null": ([], [1]), "colliding": ([0], [0, 0]), "clipped": (list(range(40)), [])},
    "optimal-local-hashing": {"colliding": (0, 1)},
    "count-mean-sketch": {"colliding": (0, 5)},
    "hadamard-count-mean": {"colliding": (0, 2)},
    "multi-pcms": {"null": ([], [0]), "colliding": ([0], [0, 0]), "clipped": (list(range(400)), [])},
    "pad-and-sample": {"null": ([], [3]), "colliding": ([0], [0, 0]), "clipped": (list(range(40)), [0])},
    "set-sizes": {"null": ([], [0, 1]), "colliding": ([0], [1]), "clipped": (list(range(40)), [])},
    "prefix-heavy-hitters": {"null": ([], ["z"]), "colliding": (["a"], ["a", "a"]), "clipped": (list("abcdefgh"), [])},
}
_WORDS = {
    "worst": "a person who holds something else",
    "null": "a person who holds nothing, or something",
    "colliding": "a person who holds what is the same to the protocol, or nearly",
    "clipped": "a person who holds far more than counts",
}


@dataclass(frozen=True, slots=True)
class Reported(AuditRow):
    """What the reports of a local protocol tell of people who hold nothing, the same, or far too much.

    The unit of a report is a person, whose things are replaced.
    """

    def _audit(self, trials: int, confidence: float) -> list[Finding]:
        """Draw reports, eight for each of ``trials``, and bound ε from below on each pair."""
        make, one, other = PROTOCOLS[self.subject.removeprefix("local-")]
        promise, drawn = make(_EPSILON).guarantee, make(_EPSILON / self.noise)
        pairs = {"worst": (one, other), **_HELD[self.subject.removeprefix("local-")]}
        return [
            _reported(f"{self.name}-{pair}", promise, drawn, *held, pair).audit(trials, confidence)
            for pair, held in pairs.items()
        ]


_ROWS = [Reported(f"local-{protocol}", "user", "replace") for protocol in PROTOCOLS]
REPORTS: dict[str, Reported] = {row.name: row for row in _ROWS}
