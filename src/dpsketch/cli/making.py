"""Commands that make sketches and releases: run, build, merge, release."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.cli.options import (
    Dataset,
    DeltaOption,
    EpsilonOption,
    JsonOption,
    KeyKind,
    KindName,
    LedgerOption,
    NoLedger,
    OutputOption,
    RelationName,
    RhoOption,
    StdinFormat,
    Target,
    unit_from,
)
from dpsketch.cli.output import print_json, progress_bar, say
from dpsketch.errors import FileRefused, InvalidInput

if TYPE_CHECKING:
    from dpsketch.cli.recipes import Reading

__all__ = ["build", "merge", "release", "run"]

Sources = Annotated[
    list[str], typer.Argument(metavar="SOURCE…", help="Files, globs, a database table (…?table=NAME), or - .")
]
KeyOption = Annotated[str | None, typer.Option("--key", help="The column that holds the key.")]
UserOption = Annotated[str | None, typer.Option("--user", help="The column that says whose record it is.")]
MaxKeys = Annotated[int | None, typer.Option("--max-keys", help="At most so many distinct keys of one user count.")]
Weight = Annotated[str | None, typer.Option("--weight", help="The column that holds a record's weight.")]
MaxWeight = Annotated[float, typer.Option("--max-weight", help="Weights above this are clipped to it.")]
KeyTypeOption = Annotated[KeyKind | None, typer.Option("--key-type", help="Keys of CSV and TSV are text unless int.")]
Relation = Annotated[RelationName, typer.Option("--neighbours", help="What one unit's presence means.")]
Rows = Annotated[int | None, typer.Option("--rows", help="Rows of the table (odd).")]
Width = Annotated[int | None, typer.Option("--width", help="Cells in a row.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of the hash functions; sketches merge if it is equal.")]
Grid = Annotated[float | None, typer.Option("--grid", help="Step to which weights are rounded.")]
Format = Annotated[StdinFormat, typer.Option("--format", help="What standard input (-) holds.")]


def run(
    kind: KindName,
    source: Sources,
    output: OutputOption,
    key: KeyOption = None,
    user: UserOption = None,
    max_keys: MaxKeys = None,
    weight: Weight = None,
    max_weight: MaxWeight = 1,
    key_type: KeyTypeOption = None,
    neighbours: Relation = RelationName.ADD_REMOVE,
    rows: Rows = None,
    width: Width = None,
    seed: Seed = None,
    grid: Grid = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    ledger: LedgerOption = None,
    dataset: Dataset = None,
    no_ledger: NoLedger = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print cost, noise, error and memory; read and charge nothing.")
    ] = False,
    stdin_format: Format = StdinFormat.CSV,
    as_json: JsonOption = False,
) -> None:
    """Read records, sketch them, charge the budget, and write a release that may be published."""
    from dpsketch.cli.recipes import SketchOptions, feed, new_sketch
    from dpsketch.privacy import requested

    requested(epsilon, delta, rho)
    unit = unit_from(user, max_keys, max_weight, neighbours)
    sketch = new_sketch(kind.value, SketchOptions(unit, rows, width, seed, grid))
    target = Target.choose(ledger, dataset, no_ledger, _dataset_name(source))
    if dry_run:
        _preview(sketch, epsilon, delta, rho, target, as_json)
        return
    _writable(output)
    with progress_bar("reading") as progress:
        read = feed(sketch, _reading(source, key, user, weight, key_type, stdin_format), progress)
    _report_reading(sketch, read)
    _release(sketch, epsilon, delta, rho, target, output, as_json)


def build(
    kind: KindName,
    source: Sources,
    output: OutputOption,
    key: KeyOption = None,
    user: UserOption = None,
    max_keys: MaxKeys = None,
    weight: Weight = None,
    max_weight: MaxWeight = 1,
    key_type: KeyTypeOption = None,
    neighbours: Relation = RelationName.ADD_REMOVE,
    rows: Rows = None,
    width: Width = None,
    seed: Seed = None,
    grid: Grid = None,
    like: Annotated[Path | None, typer.Option("--like", help="Take the spec of this .sketch.")] = None,
    stdin_format: Format = StdinFormat.CSV,
) -> None:
    """Read records into a sensitive partial sketch, to be merged and released later."""
    from dpsketch.cli.recipes import SketchOptions, feed, new_sketch
    from dpsketch.kinds import load_sensitive

    _writable(output)
    if like is None:
        unit = unit_from(user, max_keys, max_weight, neighbours)
        sketch = new_sketch(kind.value, SketchOptions(unit, rows, width, seed, grid))
    else:
        if any(value is not None for value in (rows, width, seed, grid, max_keys)):
            raise InvalidInput(
                "--like takes the whole spec of another sketch: drop --rows, --width, --seed and the like."
            )
        sketch = load_sensitive(like).empty_like()
    with progress_bar("reading") as progress:
        read = feed(sketch, _reading(source, key, user, weight, key_type, stdin_format), progress)
    _report_reading(sketch, read)
    sketch.save_sensitive(output)
    say(f"Wrote {output}. It is sensitive: it holds exact sums, and only its owner may read it.")


def merge(
    sketches: Annotated[list[Path], typer.Argument(metavar="A B…", help="Partial .sketch files of one spec.")],
    output: OutputOption,
) -> None:
    """Merge partial sketches into one; the result is that of one pass over all their records."""
    from dpsketch.kinds import load_sensitive

    if len(sketches) < 2:
        raise InvalidInput("merge needs two or more .sketch files.")
    _writable(output)
    merged = load_sensitive(sketches[0])
    for path in sketches[1:]:
        merged.merge(load_sensitive(path))
    merged.save_sensitive(output)
    say(f"Merged {len(sketches)} sketches into {output}.")


def release(
    sketch: Annotated[Path, typer.Argument(help="A .sketch file.")],
    output: OutputOption,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    ledger: LedgerOption = None,
    dataset: Dataset = None,
    no_ledger: NoLedger = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be charged; charge nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Charge the budget, add noise to a sensitive sketch, and write a release that may be published."""
    from dpsketch.kinds import load_sensitive
    from dpsketch.privacy import requested

    requested(epsilon, delta, rho)
    loaded = load_sensitive(sketch)
    target = Target.choose(ledger, dataset, no_ledger, sketch.name)
    if dry_run:
        _preview(loaded, epsilon, delta, rho, target, as_json)
        return
    _writable(output)
    _release(loaded, epsilon, delta, rho, target, output, as_json)


def _reading(
    source: list[str],
    key: str | None,
    user: str | None,
    weight: str | None,
    key_type: KeyKind | None,
    stdin_format: StdinFormat,
) -> Reading:
    from dpsketch.cli.recipes import Reading
    from dpsketch.sources import Columns

    if key is None:
        raise InvalidInput("say which column holds the key: --key COLUMN.")
    columns = Columns(key=key, user=user, weight=weight, key_type=None if key_type is None else key_type.value)
    return Reading(source, columns, stdin_format.value)


def _report_reading(sketch: Any, read: int) -> None:
    if read == 0:
        say("Note: the source holds no records; the release will hold noise alone.")
    skipped = f", {sketch.skipped_nulls:,} of them skipped because their key is null" if sketch.skipped_nulls else ""
    say(f"Read {read:,} records{skipped}. (For your eyes: this number is not private.)")


def _release(
    sketch: Any,
    epsilon: float | None,
    delta: float | None,
    rho: float | None,
    target: Target,
    output: Path,
    as_json: bool,
) -> None:
    private = sketch.release(epsilon=epsilon, delta=delta, rho=rho, ledger=target.ledger, dataset=target.dataset)
    private.save(output)
    if target.ledger is not None and target.dataset is not None:
        spent = target.ledger.spent(target.dataset)
        if spent.total is None:
            say(
                f"Charged to dataset {target.dataset!r}, which has no total: nothing will ever be refused. "
                "Set one with `dpsketch ledger create`."
            )
        else:
            say(f"Charged to dataset {target.dataset!r}: {spent.words}.")
    else:
        say("Charged to no ledger: this release is tracked nowhere.")
    if as_json:
        charge = None if private.charge is None else private.charge.to_json()
        print_json({"output": str(output), "guarantee": private.guarantee.to_json(), "charge": charge})
    else:
        say(f"Wrote {output}. Guarantee: {private.guarantee}")


def _preview(
    sketch: Any, epsilon: float | None, delta: float | None, rho: float | None, target: Target, as_json: bool
) -> None:
    """Print what a release would cost and be worth, touching no budget."""
    plan = sketch.spec.preview(epsilon=epsilon, delta=delta, rho=rho)
    answer: dict[str, Any] = {
        "mechanism": plan.guarantee.mechanism,
        "guarantee": plan.guarantee.to_json(),
        "noise_scale": plan.noise_scale,
        "predicted_error": plan.predicted_error,
        "memory_bytes": sketch.spec.memory,
        "dataset": target.dataset,
    }
    if target.ledger is not None and target.dataset is not None:
        preview = target.ledger.preview(target.dataset, plan.guarantee.costs, unit=sketch.spec.unit)
        answer["budget"] = preview.to_json()
    if as_json:
        print_json(answer)
        return
    print(f"Would release: {plan.guarantee}")
    print(f"Noise in one counter: standard deviation {plan.noise_scale:.4g}.")
    print(
        f"Error of an estimate from noise alone: standard deviation {plan.predicted_error:.4g}; collisions add to it."
    )
    print(f"Memory of the sketch: {sketch.spec.memory:,} bytes.")
    if "budget" in answer:
        print(preview.words)
    print("Nothing was read, charged or written.")


def _dataset_name(source: list[str]) -> str:
    names = sorted({"standard input" if name == "-" else Path(name.split("?")[0]).name for name in source})
    return ", ".join(names)


def _writable(output: Path) -> None:
    """Find out before any budget is spent whether the output can be written."""
    folder = output.parent
    if output.is_dir():
        raise FileRefused(f"cannot write {output}: it is a folder. Name a file.")
    if not folder.is_dir():
        raise FileRefused(f"cannot write {output}: the folder {folder} does not exist.")
    if not os.access(folder, os.W_OK):
        raise FileRefused(f"cannot write {output}: the folder {folder} is not writable.")
