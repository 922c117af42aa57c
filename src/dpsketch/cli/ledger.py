"""The budget: ledger create, show, history, verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.cli.options import JsonOption, LedgerOption, RelationName, open_ledger, unit_from
from dpsketch.cli.output import print_json, say, table

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger, Spent

__all__ = ["app"]

app = typer.Typer(help="The privacy budget: who may still release what.", no_args_is_help=True)

DatasetName = Annotated[str, typer.Argument(metavar="DATASET", help="The dataset's name.")]


@app.command()
def create(
    dataset: DatasetName,
    epsilon: Annotated[float | None, typer.Option("--epsilon", "-e", help="The total ε.")] = None,
    delta: Annotated[float | None, typer.Option("--delta", "-d", help="The total δ.")] = None,
    rho: Annotated[float | None, typer.Option("--rho", help="A total ρ instead.")] = None,
    per_user: Annotated[
        bool, typer.Option("--per-user", help="The budget protects users, not single records.")
    ] = False,
    max_keys: Annotated[int, typer.Option("--max-keys", help="With --per-user: a user's keys.")] = 1,
    max_weight: Annotated[float, typer.Option("--max-weight", help="Largest weight of a record.")] = 1,
    neighbours: Annotated[
        RelationName, typer.Option("--neighbours", help="What presence means.")
    ] = RelationName.ADD_REMOVE,
    parts: Annotated[
        str | None,
        typer.Option("--parts", help="What divides it into parts that share no record, as in day: the dearest counts."),
    ] = None,
    disjoint_users: Annotated[
        bool, typer.Option("--disjoint-users", help="With --parts: state that each user is in one part.")
    ] = False,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a dataset a total budget."""
    unit = unit_from("user" if per_user else None, max_keys if per_user else None, max_weight, neighbours)
    book = open_ledger(ledger)
    total = {"epsilon": epsilon, "delta": delta, "rho": rho}
    book.create(dataset, **total, unit=unit, parts=parts, disjoint_users=disjoint_users)
    if as_json:
        print_json(book.spent(dataset).to_json())
    else:
        say(f"Dataset {dataset!r} may spend {book.spent(dataset).total_words}, for {unit.words}.")


@app.command()
def show(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="One dataset; all by default.")] = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is spent and what is left, as a bar and in words."""
    book = open_ledger(ledger)
    all_spent = [book.spent(name) for name in ([dataset] if dataset else book.datasets())]
    if as_json:
        print_json({"datasets": [spent.to_json() for spent in all_spent]})
        return
    if not all_spent:
        say("The ledger is empty: no dataset was created or charged yet.")
    for spent in all_spent:
        _show(book, spent)


@app.command()
def history(dataset: DatasetName, ledger: LedgerOption = None, as_json: JsonOption = False) -> None:
    """List every charge to a dataset, in order."""
    entries = open_ledger(ledger).history(dataset)
    if as_json:
        print_json({"dataset": dataset, "charges": [entry.to_json() for entry in entries]})
        return
    _entries(entries)


@app.command()
def verify(
    releases: Annotated[list[Path] | None, typer.Argument(metavar="[FILE.dps…]", help="Releases to look up.")] = None,
    ledger: LedgerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check that no row was altered, moved or deleted, and that releases were charged. Exit 1 if not."""
    from dpsketch.kinds import load

    charges = []
    uncharged = []
    for path in releases or []:
        charge = getattr(load(path), "charge", None)
        if charge is None:
            uncharged.append(f"{path}: was charged to no ledger.")
        else:
            charges.append(charge)
    problems = [str(problem) for problem in open_ledger(ledger).verify(charges)] + uncharged
    if as_json:
        print_json({"verified": not problems, "problems": problems})
    else:
        for problem in problems:
            print(problem)
        if not problems:
            print("Every row is as it was written.")
    if problems:
        raise typer.Exit(1)


def _show(book: Ledger, spent: Spent) -> None:
    from dpsketch.accounting import words

    print(f"{spent.dataset}: {spent.words}")
    share = spent.share
    if share is not None:
        full = round(40 * min(1.0, share))
        print(f"  [{'#' * full}{'.' * (40 - full)}] {share:.0%} spent")
    print(f"  protects {spent.unit.words}")
    if spent.epsilon > 0:
        print(f"  What that means: {words(spent.epsilon, spent.delta, spent.unit)}")
    _entries(book.history(spent.dataset))


def _entries(entries: list[Any]) -> None:
    if not entries:
        return
    parted = any(entry.part is not None for entry in entries)
    rows = []
    for entry in entries:
        note = entry.note if entry.written is not False else f"{entry.note} (nothing was written)"
        part = [entry.part or "all"] if parted else []
        rows.append([str(entry.id), entry.time[:19], *part, entry.cost_words, note, entry.digest[:12]])
    table(["release", "time (UTC)", *(["part"] if parted else []), "cost", "what", "digest"], rows)
    for entry in entries:
        if entry.origin is not None:
            made = f" from {entry.origin.columns}" if entry.origin.columns else ""
            print(f"  release {entry.id}: {entry.origin.output}{made}, by {entry.origin.who or 'nobody named'}")
