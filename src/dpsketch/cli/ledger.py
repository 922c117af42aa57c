"""The budget: ledger create, show, history, verify."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpsketch.cli.options import (
    FILE,
    Group,
    argument,
    json_option,
    ledger_option,
    neighbours_option,
    open_ledger,
    option,
    unit_from,
)
from dpsketch.cli.output import print_json, say, table

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger, Spent
    from dpsketch.privacy import Neighbours

__all__ = ["ledger"]

ledger = Group("ledger", help="Keep privacy budgets: totals, and what was spent of them.")
_dataset = argument("dataset", "DATASET", "Name of the dataset.")


@ledger.command()
@_dataset
@option("--epsilon", "-e", type=float, help="Total ε.")
@option("--delta", "-d", type=float, help="Total δ.")
@option("--rho", type=float, help="Total ρ (zero-concentrated), instead of ε and δ.")
@option("--per-user", is_flag=True, help="Protection of users, not of single records.")
@option("--max-keys", type=int, default=1, help="Maximum number of distinct keys per user, with --per-user.")
@option("--max-weight", type=float, default=1.0, help="Largest weight of a record.")
@neighbours_option
@option("--parts", help="Name of what divides it into parts that share no record, as in day: the dearest part counts.")
@option("--disjoint-users", is_flag=True, help="Statement that each user is in one part, with --parts.")
@ledger_option
@json_option
def create(
    dataset: str, epsilon: float | None, delta: float | None, rho: float | None, per_user: bool, max_keys: int,
    max_weight: float, neighbours: Neighbours, parts: str | None, disjoint_users: bool, ledger: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Give a dataset a total budget."""
    unit = unit_from("user" if per_user else None, max_keys if per_user else None, max_weight, neighbours)
    book = open_ledger(ledger)
    total = {"epsilon": epsilon, "delta": delta, "rho": rho}
    book.create(dataset, **total, unit=unit, parts=parts, disjoint_users=disjoint_users)
    if as_json:
        print_json(book.spent(dataset).to_json())
    else:
        say(f"Dataset {dataset!r} may spend {book.spent(dataset).total_words}, for {unit.words}.")


@ledger.command()
@argument("dataset", "[DATASET]", "Name of one dataset; all by default.", required=False)
@ledger_option
@json_option
def show(dataset: str | None, ledger: str | None, as_json: bool) -> None:
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


@ledger.command()
@_dataset
@ledger_option
@json_option
def history(dataset: str, ledger: str | None, as_json: bool) -> None:
    """List every charge to a dataset, in order."""
    entries = open_ledger(ledger).history(dataset)
    if as_json:
        print_json({"dataset": dataset, "charges": [entry.to_json() for entry in entries]})
        return
    _entries(entries)


@ledger.command()
@argument("releases", "FILE…", "Releases (.dps) to look up.", nargs=-1, type=FILE)
@ledger_option
@json_option
@click.pass_context
def verify(ctx: click.Context, releases: tuple[Path, ...], ledger: str | None, as_json: bool) -> None:
    """Check that no row was altered, moved or deleted, and that releases were charged. Exit 1 if not."""
    from dpsketch.kinds import load

    charges = []
    uncharged = []
    for path in releases:
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
        ctx.exit(1)


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
