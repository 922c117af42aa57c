"""The command that merges partial sketches, or the shares of several parties."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from dpsketch.cli.delivery import refuse_lasting, save
from dpsketch.cli.exits import about_data
from dpsketch.cli.options import OutputOption, OverwriteOption
from dpsketch.cli.output import say
from dpsketch.cli.spool import Ending, Spool
from dpsketch.errors import InvalidInput
from dpsketch.sketches.kinds import KINDS

__all__ = ["merge"]


def merge(
    sketches: Annotated[
        list[Path], typer.Argument(metavar="A B…", help="Partial .sketch files of one spec, or .dps shares of parties.")
    ],
    output: OutputOption,
    disjoint_users: Annotated[
        bool, typer.Option("--disjoint-users", help="State that no user is in two of them; it is then not checked.")
    ] = False,
    missing: Annotated[int, typer.Option("--missing", help="Shares: so many parties may be missing.")] = 0,
    overwrite: OverwriteOption = False,
) -> None:
    """Merge partial sketches, as one pass over all their records; or the released shares of several parties."""
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


def _merge_shares(shares: list[Path], spool: Spool, disjoint_users: bool, missing: int) -> None:
    from dpsketch import files
    from dpsketch.kinds import load
    from dpsketch.sketches.countsketch import merge_releases

    loaded: list[Any] = [load(path) for path in shares]
    together = merge_releases(loaded, missing=missing, disjoint_users=disjoint_users)
    save(spool, files.encode(together.to_document()), sensitive=False)
    say(f"Merged {len(shares)} shares into {spool.output}. Guarantee: {together.guarantee}")


def _merge_partials(sketches: list[Path], spool: Spool, disjoint_users: bool) -> None:
    from dpsketch import files
    from dpsketch.kinds import load_sensitive

    if len({os.path.realpath(path) for path in sketches}) < len(sketches):
        raise InvalidInput("a .sketch file is given twice, and each of its records would count twice. Name it once.")
    parts = [Ending.of(path) for path in sketches]
    merged = load_sensitive(sketches[0])
    stated = {"disjoint_users": True} if disjoint_users else {}
    with about_data():
        for path in sketches[1:]:
            merged.merge(load_sensitive(path), **stated)
    once = KINDS[files.read(sketches[0], allow_sensitive=True).kind].released_once
    if once:
        for path in sketches:
            refuse_lasting(path)
    save(spool, merged.to_sensitive_bytes(), sensitive=True, ends=parts if once else [])
    say(f"Merged {len(sketches)} sketches into {spool.output}.")
    if once:
        say("Destroyed the parts: they share one secret, which is good for one release only.")
