"""How the command line starts and releases a histogram, in bounded memory too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpsketch.errors import InvalidInput
from dpsketch.laws.thresholds import FORMS
from dpsketch.laws.votes import VOTE_FORMS
from dpsketch.release import typed_keys
from dpsketch.sketches.histogram.sketch import Histogram
from dpsketch.sketches.histogram.votes import VoteHistogram

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Unit
    from dpsketch.sketches.histogram.spec import HistogramSpec
    from dpsketch.sketches.histogram.votes import VoteHistogramSpec

__all__ = ["release_arguments", "start", "vote_arguments"]


def start(
    unit: Unit, given: dict[str, Any], *, columns: tuple[str, ...], key_type: KeyType | None
) -> Histogram | VoteHistogram:
    """Start a histogram, in bounded memory if a number of counters is stated."""
    if "max_counters" not in given:
        # A seed may have been drawn before it was known that nothing would be hashed.
        shape = {name: value for name, value in given.items() if name != "seed"}
        return Histogram(**shape, unit=unit, key_type=key_type)
    for name in ("memory_limit", "temp_directory", "grid"):
        if name in given:
            flag = name.replace("_", "-")
            raise InvalidInput(f"--max-counters bounds the memory, and each key counts once: leave --{flag} out.")
    return VoteHistogram(**given, unit=unit, key_type=key_type)


def release_arguments(spec: HistogramSpec, given: dict[str, Any], key_type: KeyType | None) -> dict[str, Any]:
    """Return the arguments of ``release``; the lines of ``keys_from`` are keys of the type that the spec states."""
    arguments = dict(given)
    if "form" in given and given["form"] not in FORMS:
        raise InvalidInput(f"--form is one of {', '.join(FORMS)}.")
    if (lines := arguments.pop("keys_from", None)) is not None:
        arguments["keys"] = typed_keys(lines, spec.key_type, None if spec.key_type else key_type, spec.key_columns)
    return arguments


def vote_arguments(spec: VoteHistogramSpec, given: dict[str, Any], key_type: KeyType | None) -> dict[str, Any]:
    """Return the arguments of ``release`` in bounded memory."""
    if "form" in given and given["form"] not in VOTE_FORMS:
        raise InvalidInput(f"--form is one of {', '.join(VOTE_FORMS)} with --max-counters.")
    return dict(given)
