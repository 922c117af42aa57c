"""Questions to a release, whatever its kind: what the command line and the service ask."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dpsketch.errors import InvalidInput
from dpsketch.release import typed_keys
from dpsketch.sketches.kinds import KINDS
from dpsketch.sketches.specs import fingerprint_of

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.release import Answering, Release
    from dpsketch.results import Estimates

__all__ = ["answer", "describe", "top"]


def answer(
    release: Answering, asked: list[Any], confidence: float, estimator: str | None, key_type: KeyType | None = None
) -> Estimates:
    """Answer what was asked; ``key_type`` says how keys are read where the release does not."""
    found = release.answer(asked, confidence=confidence, estimator=estimator, key_type=key_type)
    return replace(found, counts=release.counts)


def top(
    release: Any, n: int, candidates: list[Any] | None, confidence: float, key_type: KeyType | None = None
) -> Estimates:
    """List the most frequent keys, with intervals that hold for all of them at once."""
    kind = KINDS[release.kind]
    if "top" not in kind.answers:
        raise InvalidInput("this release has no keys to list; `dpsketch inspect` says what it answers.")
    if candidates is None and not kind.lists_keys:
        raise InvalidInput(
            "this release knows counts, not keys. Give a list of candidates (--candidates FILE, one key a line; a "
            "public list costs no privacy), or make a release that names keys by itself: dpsketch run histogram …"
        )
    listed = None if candidates is None else typed_keys(candidates, release.key_type, key_type, release.key_columns)
    found: Estimates = release.top(n, candidates=listed, confidence=confidence)
    return replace(found, counts=release.counts)


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
