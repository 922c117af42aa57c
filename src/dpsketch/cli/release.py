"""Commands about partial sketches and unfinished files: merge, release, recover."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from dpsketch.cli.budget import BudgetOptions, source_of_sketch
from dpsketch.cli.delivery import deliver, refuse_lasting, room_of, save
from dpsketch.cli.exits import about_data
from dpsketch.cli.notices import preview, tell
from dpsketch.cli.options import (
    FILE,
    argument,
    command,
    gather,
    json_option,
    make_option,
    option,
    options_of,
    output_option,
    overwrite_option,
    was_stated,
)
from dpsketch.cli.output import say
from dpsketch.cli.spool import Ending, Spool
from dpsketch.errors import InvalidInput
from dpsketch.sketches.kinds import KINDS

__all__ = ["merge", "recover", "release"]

# The kind is in the file, so every kind's options are taken, and those of another kind refused when it is read.
_RELEASE_OPTIONS = {option.name: option for kind in KINDS.values() for option in kind.release_options}


@command()
@argument("sketches", "A B…", "Partial .sketch files of one spec, or .dps shares of parties.", nargs=-1, type=FILE)
@output_option
@option("--disjoint-users", is_flag=True, help="Statement that no user is in two of them; it is then not checked.")
@option("--missing", type=int, default=0, help="Number of parties whose shares may be missing.")
@overwrite_option
def merge(sketches: tuple[Path, ...], output: Path, disjoint_users: bool, missing: int, overwrite: bool) -> None:
    """Merge sensitive sketches, or the released shares of parties. The result is that of one pass over all records."""
    if len(sketches) < 2:
        raise InvalidInput("merge needs two or more files.")
    # What a part holds is in the whole, so that a part may be replaced by it. A share was paid for by itself.
    into_part = os.path.realpath(output) in map(os.path.realpath, sketches) and _is_sensitive(output)
    with Spool.reserve(output, overwrite=overwrite or into_part) as spool:
        if _is_sensitive(sketches[0]):
            _merge_partials(sketches, spool, disjoint_users)
        else:
            _merge_shares(sketches, spool, disjoint_users, missing)


def _is_sensitive(path: Path) -> bool:
    from dpsketch import files

    return files.read(path, allow_sensitive=True).sensitive


def _merge_shares(shares: tuple[Path, ...], spool: Spool, disjoint_users: bool, missing: int) -> None:
    from dpsketch import files
    from dpsketch.kinds import load
    from dpsketch.sketches.countsketch import merge_releases

    loaded: list[Any] = [load(path) for path in shares]
    together = merge_releases(loaded, missing=missing, disjoint_users=disjoint_users)
    save(spool, files.encode(together.to_document()), sensitive=False)
    say(f"Merged {len(shares)} shares into {spool.output}. Guarantee: {together.guarantee}")


def _merge_partials(sketches: tuple[Path, ...], spool: Spool, disjoint_users: bool) -> None:
    from dpsketch.kinds import load_sensitive

    if len({os.path.realpath(path) for path in sketches}) < len(sketches):
        raise InvalidInput("a .sketch file is given twice, and each of its records would count twice. Name it once.")
    parts = [Ending.of(path) for path in sketches]
    merged = load_sensitive(sketches[0])
    stated = {"disjoint_users": True} if disjoint_users else {}
    with about_data():
        for path in sketches[1:]:
            merged.merge(load_sensitive(path), **stated)
    once = KINDS[merged.kind].released_once
    if once:
        for path in sketches:
            refuse_lasting(path)
    save(spool, merged.to_sensitive_bytes(), sensitive=True, ends=parts if once else [])
    say(f"Merged {len(sketches)} sketches into {spool.output}.")
    if once:
        say("Destroyed the parts: they share one secret, which is good for one release only.")


@command(
    params=[
        *options_of(BudgetOptions),
        *(make_option(*each[:3], group="Release") for each in _RELEASE_OPTIONS.values()),
    ]
)
@argument("sketch", "SKETCH", "Sensitive .sketch file.", type=FILE)
@option("--output", "-o", type=FILE, help="File to write; --dry-run needs none.")
@option("--parties", type=int, help="Number of parties that share the noise of counts; this is one share.")
@option("--honest", type=float, default=1.0, help="Fraction of the parties that are sure to be honest.")
@option("--party", type=int, help="Number of this party, from 0 on.")
@option("--dry-run", is_flag=True, help="Preview of cost, noise, error and memory; nothing is charged.")
@overwrite_option
@json_option
def release(
    sketch: Path, output: Path | None, parties: int | None, honest: float, party: int | None, dry_run: bool,
    overwrite: bool, as_json: bool, **values: Any,
) -> None:  # fmt: skip
    """Release a sensitive sketch: charge the budget and add noise. The file may be published."""
    stated = {name: values[name] for name in _RELEASE_OPTIONS if was_stated(values[name])}
    budget = gather(BudgetOptions, values, release=stated)
    if output is None and not dry_run:
        raise click.UsageError("Say where to write: -o FILE (--dry-run needs none).")
    budget.check()
    if output is None or dry_run:
        asked = _releasable(sketch)
        target = budget.target(lambda: source_of_sketch(sketch, asked))
        preview(asked, budget, target, as_json, budget.arguments(KINDS[asked.kind], asked.spec))
        return
    with Spool.reserve(output, overwrite=overwrite) as spool:
        ending = Ending.of(sketch)
        loaded = _releasable(sketch)
        target = budget.target(lambda: source_of_sketch(sketch, loaded))
        spool.make_room(room_of(loaded))
        kind = KINDS[loaded.kind]
        if kind.released_once:
            refuse_lasting(sketch)
        options = _share(loaded, parties, honest, party) | budget.arguments(kind, loaded.spec)
        ends = [ending] if kind.released_once else []
        private = deliver(loaded, budget, target, spool, repeatable=True, ends=ends, options=options)
    tell(private, target, output, as_json, private.charge)
    if kind.released_once:
        say(f"Destroyed {sketch}: a sketch of this kind is private for one release only.")


def _releasable(path: Path) -> Any:
    from dpsketch.kinds import load_sensitive

    loaded = load_sensitive(path)
    if not hasattr(loaded, "release"):
        raise InvalidInput(f"a {type(loaded).__name__} was charged when it began, and publishes from Python only.")
    return loaded


def _share(sketch: Any, parties: int | None, honest: float, party: int | None) -> dict[str, Any]:
    """Read the options about several parties; empty where there is one."""
    if parties is None:
        return {}
    from dpsketch.sketches.countsketch import CountSketch, Share

    if not isinstance(sketch, CountSketch):
        raise InvalidInput("--parties shares the noise of counts; this is another kind of sketch.")
    return {"share": Share(parties, honest, party)}


@command()
@argument("output", "FILE", "File (-o) of the command that was interrupted.", type=FILE)
@overwrite_option
def recover(output: Path, overwrite: bool) -> None:
    """Put in place the file of an interrupted command, if it is whole. Nothing is drawn or charged."""
    with Spool.reopen(output, overwrite=overwrite) as spool:
        spool.finish()
    say(f"Put {output} in place.")
