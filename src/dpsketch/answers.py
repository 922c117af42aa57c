"""Questions to a release, whatever its kind: what the command line and the service ask."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch.core.drawn import combined
from dpsketch.errors import InvalidInput, SpecMismatch
from dpsketch.numbers import probability, real_number, whole_number
from dpsketch.release import require_keys, typed_keys
from dpsketch.results import NOISE_ONLY, Estimates
from dpsketch.sketches.kinds import KINDS
from dpsketch.sketches.specs import fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Guarantee
    from dpsketch.release import Answering, Release

__all__ = ["answer", "compare", "decode", "describe", "top"]

_ALL = 2**31  # as many keys as may be asked for


def answer(
    release: Answering, asked: list[Any], confidence: float, estimator: str | None, key_type: KeyType | None = None
) -> Estimates:
    """Answer what was asked; ``key_type`` says how keys are read where the release does not."""
    found = release.answer(asked, confidence=confidence, estimator=estimator, key_type=key_type)
    return replace(found, counts=release.counts)


def decode(
    release: Any,
    asked: list[Any],
    confidence: float,
    key_type: KeyType | None = None,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> Estimates:
    """Estimate many keys together, where a release can: each is cleared of what the others add to its cells.

    ``progress`` is told after each sweep over all keys how many there were, and how many there are at most.
    """
    if "decode" not in KINDS[release.kind].answers:
        raise InvalidInput("this release cannot be decoded: its keys share no cells, or it has none. Ask without it.")
    require_keys(asked)
    keys = typed_keys(asked, release.key_type, key_type, release.key_columns)
    found: Estimates = release.decode(keys, confidence=confidence, progress=progress)
    return replace(found, counts=release.counts)


def top(
    release: Any,
    n: int | None,
    candidates: list[Any] | None,
    confidence: float,
    key_type: KeyType | None = None,
    *,
    threshold: float | None = None,
    decoded: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Estimates:
    """List the most frequent keys, with intervals that hold for all of them at once.

    Parameters
    ----------
    release : Release
        The release.
    n : int or None
        At most so many keys; None is all of them.
    candidates : list or None
        Keys to choose from, where the release does not name its own.
    confidence : float
        The probability with which all intervals hold.
    key_type : {"int", "text"} or None
        How keys are read, where the release does not say.
    threshold : float or None
        Only keys with an estimate of at least this.
    decoded : bool
        Whether the candidates are estimated together (:func:`decode`).
    progress : callable, optional
        What :func:`decode`, or a search for keys level by level, tells how far it is.
    """
    whole_number("n", _ALL if n is None else n, low=1, high=_ALL)
    if threshold is not None and not math.isfinite(real_number("threshold", threshold)):
        raise InvalidInput("the threshold is a finite number.")
    if decoded:
        found = _largest_decoded(release, n, candidates, confidence, key_type, progress)
    else:
        found = _top(release, _ALL if n is None else n, candidates, confidence, key_type, progress)
    passing = len(found) if threshold is None else int(np.count_nonzero(found.value >= threshold))
    if found and not passing:
        return replace(found[:0], note=f"no estimate reaches {threshold:g}; the largest is {found.value[0]:.6g}.")
    return found[:passing]


def _largest_decoded(
    release: Any,
    n: int | None,
    candidates: list[Any] | None,
    confidence: float,
    key_type: KeyType | None,
    progress: Callable[[int, int], None] | None,
) -> Estimates:
    """Decode candidates, and return the largest; each interval is widened for the number of candidates (Bonferroni)."""
    if candidates is None:
        raise InvalidInput("decoding takes a list of candidates: --candidates FILE, one key a line.")
    from dpsketch.sketches.heavy.search import confidence_in_each

    distinct = list(dict.fromkeys(typed_keys(candidates, release.key_type, key_type, release.key_columns)))
    confidence = probability("confidence", confidence)
    found = decode(release, distinct, confidence_in_each(confidence, len(distinct)), key_type, progress=progress)
    order = np.argsort(-found.value, kind="stable")[:n]
    sides = (found.value[order], found.low[order], found.high[order])
    return Estimates([found.key[i] for i in order], *sides, confidence, found.counts)


def _top(
    release: Any,
    n: int,
    candidates: list[Any] | None,
    confidence: float,
    key_type: KeyType | None,
    progress: Callable[[int, int], None] | None,
) -> Estimates:
    kind = KINDS[release.kind]
    if "top" not in kind.answers and kind.reads == "groups":
        raise InvalidInput("a table has rows: `dpsketch query` lists them.")
    if "top" not in kind.answers:
        raise InvalidInput("this release has no keys to list; `dpsketch inspect` says what it answers.")
    if candidates is None and not kind.lists_keys:
        raise InvalidInput(
            "this release knows counts, not keys. Give a list of candidates (--candidates FILE, one key a line; a "
            "public list costs no privacy), or make a release that names keys by itself: dpsketch run histogram …, "
            "or dpsketch run heavy … where no key may be stored."
        )
    listed = None if candidates is None else typed_keys(candidates, release.key_type, key_type, release.key_columns)
    told = {"progress": progress} if release.searches else {}
    found: Estimates = release.top(n, candidates=listed, confidence=confidence, **told)
    return replace(found, counts=release.counts)


def compare(
    one: Release, other: Release, asked: list[Any], confidence: float, key_type: KeyType | None = None
) -> tuple[Estimates, Guarantee]:
    """Return the second answer less the first, with an interval for the difference, and the guarantee of both.

    Without keys, all that two histograms name are compared, the largest changes first. The interval covers the error
    of the two releases only.
    """
    if one.guarantee.unit != other.guarantee.unit:
        raise InvalidInput("the two releases protect different units: what they count is not the same. Compare others.")
    if (one.kind, _columns_of(one)) != (other.kind, _columns_of(other)):
        raise InvalidInput(
            "the two releases are of different kinds, or have keys or groups of different columns: what they count is "
            "not the same. Compare others."
        )
    found = _change(one, other, asked or _named(one, other), confidence, key_type)
    if not asked:
        order = sorted(range(len(found)), key=lambda i: -abs(found.value[i]))
        sides = {side: getattr(found, side)[order] for side in ("value", "low", "high")}
        found = replace(found, key=[found.key[i] for i in order], **sides)
    found = replace(found, note=" ".join(filter(None, [found.note, NOISE_ONLY])))
    return found, combined(one.guarantee, other.guarantee)


def _columns_of(release: Any) -> tuple[str, ...]:
    """Return the columns of a table's groups, or of compound keys."""
    return release.spec.by if _is_table(release) else release.key_columns  # type: ignore[no-any-return]


def _is_table(release: Any) -> bool:
    return KINDS[release.kind].reads == "groups"


def _named(one: Any, other: Any) -> list[Any]:
    """Return all keys that two releases name, or the groups that two tables both list."""
    if _is_table(one):
        known = set(other.groups)
        shared = [str(group) if one.key_columns else group for group in one.groups if group in known]
        if not shared:
            raise InvalidInput("the two tables have no group in common. Compare tables of the same groups.")
        return shared
    if not (hasattr(one, "keys") and hasattr(other, "keys")):
        raise InvalidInput("these releases name no keys: say which to compare, as KEY… or --keys-from FILE.")
    named = list(dict.fromkeys([*one.keys, *other.keys]))
    if not named:
        raise InvalidInput("neither release names a key: say which to compare, as KEY… or --keys-from FILE.")
    return named


def _change(one: Any, other: Any, asked: list[Any], confidence: float, key_type: KeyType | None) -> Estimates:
    """Return the second answer less the first.

    Where the releases subtract, that is a release of its own, and its interval is that of one estimate. Elsewhere both
    intervals are widened so that both hold together (Bonferroni), and their ends are subtracted.
    """
    if hasattr(one, "__sub__"):
        try:
            return answer(other - one, asked, confidence, None, key_type)
        except SpecMismatch:
            pass  # of other shapes or seeds
    each = (1 + confidence) / 2
    before, after = (answer(release, asked, each, None, key_type) for release in (one, other))
    if _is_table(one):
        before, after = _of_shared(before, after, _shared(one, other))
    return Estimates(
        before.key, after.value - before.value, after.low - before.high, after.high - before.low, confidence,
        before.counts, before.note or after.note,
    )  # fmt: skip


def _shared(one: Any, other: Any) -> set[str]:
    """Return the names of the numbers that two tables both have, computed of the same values in the same way."""
    ours, theirs = (
        {(name, column.kind, column.value, column.over) for column in table.spec.columns for name in column.names}
        for table in (one, other)
    )
    if not ours & theirs:
        raise InvalidInput(
            f"the two tables have no number in common: one has {', '.join(one.value_names)}, the other "
            f"{', '.join(other.value_names)}. Compare tables with a column of the same name and meaning."
        )
    return {name for name, *_ in ours & theirs}


def _of_shared(before: Estimates, after: Estimates, names: set[str]) -> tuple[Estimates, Estimates]:
    """Return the numbers of two tables that both have, in one order."""
    found = []
    for each in (before, after):
        order = [i for i, key in enumerate(each.key) if key[-1] in names]
        sides = {side: getattr(each, side)[order] for side in ("value", "low", "high")}
        found.append(replace(each, key=[each.key[i] for i in order], **sides))
    places = {key: i for i, key in enumerate(found[1].key)}
    order = [places[key] for key in found[0].key]
    sides = {side: getattr(found[1], side)[order] for side in ("value", "low", "high")}
    return found[0], replace(found[1], key=found[0].key, **sides)


def describe(release: Release, size: int) -> dict[str, Any]:
    """Say what a release is and what it promises: everything but its counters. ``size`` is the file's, in bytes."""
    charge = getattr(release, "charge", None)
    named = {"spec_fingerprint": fingerprint_of(release.spec)} if hasattr(release, "spec") else {}
    return {
        "kind": release.kind,
        "sensitive": False,
        "answers": KINDS[release.kind].question,
        "counts": release.counts,
        "spec": release.public_spec(),
        **named,
        "bytes": size,
        "guarantee": release.guarantee.to_json(),
        "charge": None if charge is None else charge.to_json(),
        **release.facts(),
        **({} if release.bare_names is None else {"names": release.bare_names}),
    }
