"""Commands about two releases: compare, add, subtract."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.cli.delivery import save
from dpsketch.cli.forms import Forms
from dpsketch.cli.options import KeyKind, OutputOption, OverwriteOption, read_lines, with_groups
from dpsketch.cli.output import say
from dpsketch.cli.query import Confidence
from dpsketch.cli.spool import Spool
from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.results import Estimates

__all__ = ["add", "compare", "subtract"]

First = Annotated[Path, typer.Argument(metavar="A", help="A released .dps file.")]
Second = Annotated[Path, typer.Argument(metavar="B", help="Another one.")]


@with_groups(forms=Forms)
def compare(
    forms: Forms,
    first: First,
    second: Second,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY…", help="What to ask both; of histograms all keys that they name, by default."),
    ] = None,
    keys_from: Annotated[Path | None, typer.Option("--keys-from", help="A file with one key a line.")] = None,
    confidence: Confidence = 0.95,
    key_type: Annotated[
        KeyKind | None, typer.Option("--key-type", help="Read keys as int or text, where the releases do not say.")
    ] = None,
) -> None:
    """Say what changed from A to B: the second answer less the first, with an interval for the difference.

    Both are asked the same. The largest changes come first where no keys were named. The interval covers the error of
    the two releases only: this is no significance test.
    """
    from dpsketch.core.drawn import combined
    from dpsketch.kinds import load
    from dpsketch.results import NOISE_ONLY

    forms.check()
    one, other = load(first), load(second)
    if one.guarantee.unit != other.guarantee.unit:
        raise InvalidInput("the two releases protect different units: what they count is not the same. Compare others.")
    if (one.kind, one.key_columns) != (other.kind, other.key_columns):
        raise InvalidInput("the two releases are of different kinds, or have keys of different columns.")
    asked: list[Any] = list(keys or []) + (read_lines(keys_from) if keys_from is not None else [])
    if not asked:
        asked = _named(one, other)
    found = _change(one, other, asked, confidence, None if key_type is None else key_type.value)
    if not keys and keys_from is None and len(found) > 1:
        order = sorted(range(len(found)), key=lambda i: -abs(found.value[i]))
        sides = (found.value[order], found.low[order], found.high[order])
        found = replace(found, key=[found.key[i] for i in order], value=sides[0], low=sides[1], high=sides[2])
    guarantee = combined(one.guarantee, other.guarantee)
    found = replace(found, note=" ".join(filter(None, [found.note, NOISE_ONLY])))
    forms.show(found, guarantee, one.key_columns)


def add(first: First, second: Second, output: OutputOption, overwrite: OverwriteOption = False) -> None:
    """Add two releases over different records into one of all of them. Nothing is read or charged."""
    _combine(first, second, output, overwrite, 1)


def subtract(first: First, second: Second, output: OutputOption, overwrite: OverwriteOption = False) -> None:
    """Subtract release B from release A: what it answers are differences. Nothing is read or charged."""
    _combine(first, second, output, overwrite, -1)


def _combine(first: Path, second: Path, output: Path, overwrite: bool, sign: int) -> None:
    from dpsketch import files
    from dpsketch.kinds import load

    one: Any = load(first)
    other: Any = load(second)
    if not (hasattr(one, "__add__") and type(one) is type(other)):
        raise InvalidInput(
            "only two releases of counts add up to one, as they are linear. `dpsketch compare A B` tells how two "
            "others differ; their records together need a sketch of both (dpsketch merge)."
        )
    together = one + other if sign > 0 else one - other
    with Spool.reserve(output, overwrite=overwrite) as spool:
        save(spool, files.encode(together.to_document()), sensitive=False)
    say(f"Wrote {output}. Guarantee: {together.guarantee}")


def _named(one: Any, other: Any) -> list[Any]:
    """Return all keys that two releases name."""
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
    from dpsketch.answers import answer
    from dpsketch.errors import SpecMismatch
    from dpsketch.results import Estimates

    if hasattr(one, "__sub__"):
        try:
            return answer(other - one, asked, confidence, None, key_type)
        except SpecMismatch:
            pass  # of other shapes or seeds
    each = (1 + confidence) / 2
    before, after = (answer(release, asked, each, None, key_type) for release in (one, other))
    return Estimates(
        before.key, after.value - before.value, after.low - before.high, after.high - before.low, confidence,
        before.counts, before.note or after.note,
    )  # fmt: skip
