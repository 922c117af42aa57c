"""Options that several commands share, and what they mean together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger
    from dpsketch.privacy import Unit

__all__ = [
    "Dataset", "DeltaOption", "EpsilonOption", "JsonOption", "KeyKind", "KindName", "LedgerOption", "NoLedger",
    "OutputOption", "RelationName", "RhoOption", "StdinFormat", "Target", "unit_from",
]  # fmt: skip


class KindName(StrEnum):
    """The kinds that the command line can make."""

    COUNTS = "counts"


class KeyKind(StrEnum):
    """How keys of a text file are read."""

    TEXT = "text"
    INT = "int"


class RelationName(StrEnum):
    """The neighbour relations."""

    ADD_REMOVE = "add_remove"
    REPLACE = "replace"


class StdinFormat(StrEnum):
    """What standard input holds."""

    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    ARROW = "arrow"


EpsilonOption = Annotated[float | None, typer.Option("--epsilon", "-e", help="Privacy: ε of the release.")]
DeltaOption = Annotated[float | None, typer.Option("--delta", "-d", help="Privacy: δ of the release; 0 is pure.")]
RhoOption = Annotated[float | None, typer.Option("--rho", help="Privacy: ρ (zero-concentrated), instead of ε and δ.")]
OutputOption = Annotated[Path, typer.Option("--output", "-o", help="The file to write.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        envvar="DPSKETCH_LEDGER",
        help="Budget ledger: a file or a database URL. Default: one file in your data folder.",
    ),
]
Dataset = Annotated[
    str | None, typer.Option("--dataset", help="The dataset whose budget pays. Default: the source's file name.")
]
NoLedger = Annotated[bool, typer.Option("--no-ledger", help="Charge no budget: this release is tracked nowhere.")]


def unit_from(user: str | None, max_keys: int | None, max_weight: float, relation: RelationName) -> Unit:
    """Read the privacy unit off the options: a user's column makes it a user, else it is a record."""
    from dpsketch.privacy import per_record, per_user

    if user is None:
        if max_keys is not None:
            raise InvalidInput("--max-keys bounds a user's keys: name the user's column with --user.")
        return per_record(max_weight=max_weight, neighbours=relation.value)
    if max_keys is None:
        raise InvalidInput("--user needs --max-keys: at most so many distinct keys of one user count.")
    return per_user(max_keys, max_weight=max_weight, neighbours=relation.value)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a release is charged."""

    ledger: Ledger | None
    dataset: str | None

    @classmethod
    def choose(cls, ledger: str | None, dataset: str | None, no_ledger: bool, fallback: str) -> Target:
        """Choose the ledger: the one named, else the user's own, unless the caller opted out by name."""
        if no_ledger:
            if ledger is not None and dataset is not None:
                raise InvalidInput("--no-ledger and --dataset contradict each other.")
            return cls(None, None)
        from dpsketch.ledger import Ledger

        return cls(Ledger.default() if ledger is None else Ledger(ledger), dataset or fallback)
