"""Commands that make sketches and releases: run, build, release; and recover, for what one of them left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.cli.datasets import source_of, source_of_sketch
from dpsketch.cli.delivery import deliver, refuse_lasting, room_of, save
from dpsketch.cli.notice import report, tell
from dpsketch.cli.options import (
    BudgetOptions,
    JsonOption,
    OutputOption,
    OverwriteOption,
    PlannedOutput,
    SketchFlags,
    Target,
    with_groups,
    written_to,
)
from dpsketch.cli.output import print_json, progress_bar, say
from dpsketch.cli.preview import better_kind, planned, preview
from dpsketch.cli.spool import Ending, Spool
from dpsketch.errors import InvalidInput
from dpsketch.sketches.kinds import KINDS

if TYPE_CHECKING:
    from dpsketch.cli.parts import Parts

__all__ = ["build", "recover", "release", "run"]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print cost, noise, error and memory; touch nothing.")]


@with_groups(flags=SketchFlags, budget=BudgetOptions)
def run(
    flags: SketchFlags,
    budget: BudgetOptions,
    output: PlannedOutput = None,
    like: Annotated[
        Path | None, typer.Option("--like", help="Take the spec of this .dps, its seed too, so that days subtract.")
    ] = None,
    part_by: Annotated[
        str | None, typer.Option("--part-by", help="One release for each part: the column that names a record's part.")
    ] = None,
    parts: Annotated[
        Path | None,
        typer.Option("--parts", help="The parts of --part-by, one a line. -o is a folder, or has {part}."),
    ] = None,
    continual: Annotated[
        str | None,
        typer.Option("--continual", help="One price for many days, as in days=365,objective=totals."),
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", help="The folder that keeps the stream of --continual; sensitive.")
    ] = None,
    day: Annotated[str | None, typer.Option("--day", help="The date to publish of --continual, as 2026-11-15.")] = None,
    series: Annotated[
        Path | None, typer.Option("--series", help="Write all days of --continual so far here as well (.dps).")
    ] = None,
    overwrite: OverwriteOption = False,
    dry_run: DryRun = False,
    as_json: JsonOption = False,
) -> None:
    """Read records, sketch them, charge the budget, and write a release that may be published.

    Without --seed and --like the hash functions get a fresh seed, which the release says: whichever key they treat
    badly, it is another one in the next release.
    """
    from dpsketch import privacy
    from dpsketch.cli.recipes import feed, new_sketch, sketch_like, sources_of, stated_type

    output = written_to(output, dry_run=dry_run)
    privacy.Budget(**budget.amount)
    budget.refuse_careless()
    sources = sources_of(flags)
    if not (continual is None and state is None and day is None):
        from dpsketch.cli.daily import Continual, run_day

        daily = Continual.of(continual, state, day)
        if like is not None or part_by is not None or parts is not None or dry_run:
            raise InvalidInput("--continual goes without --like, --part-by, --parts and --dry-run.")
        target = budget.target(lambda: source_of(sources))
        private, charge = run_day(
            daily, flags, budget, target, output, overwrite=overwrite, series=series, report=report
        )
        # Charged when it began, whatever today's file would be charged to.
        held = replace(target, dataset=private.charge and private.charge.dataset)
        tell(private, held, output, as_json, charge)
        return
    if series is not None:
        raise InvalidInput("--series writes the days of --continual: name that as well.")
    sketch = new_sketch(flags, fresh_seed=True) if like is None else sketch_like(like, flags, sensitive=False)
    kind, key_type = KINDS[sketch.kind], stated_type(flags)
    options = budget.arguments(kind, sketch.spec, key_type)
    target = budget.target(lambda: source_of(sources))
    better = None if like is not None or as_json else better_kind(flags, budget, output)
    divided = _parts(sketch, flags, budget, part_by, parts, output)
    if dry_run:
        asked = target if divided is None or target.ledger is None else replace(target, part=divided.names[0])
        preview(sketch, budget, asked, as_json, options)
        if better is not None:
            say(better)
        return
    if divided is not None:
        _run_parts(sketch, divided, flags, budget, target, overwrite=overwrite, as_json=as_json)
        return
    with Spool.reserve(output, overwrite=overwrite) as spool:
        spool.make_room(room_of(sketch))
        # A budget that this kind cannot take is refused before an hour of reading, not after it.
        planned(sketch, budget, options)
        with progress_bar("reading") as progress:
            reading = feed(sketch, flags, progress)
        if better is not None:
            say(better)
        report(reading, sketch)
        options = budget.arguments(kind, sketch.spec, key_type)  # by now the source has said what its keys are
        private = deliver(sketch, budget, target, spool, columns=_columns(flags), options=options)
    tell(private, target, output, as_json, private.charge)


def _parts(
    sketch: Any, flags: SketchFlags, budget: BudgetOptions, column: str | None, listed: Path | None, output: Path
) -> Parts | None:
    from dpsketch.cli.parts import Parts, refuse_unfit

    if column is None:
        if listed is not None:
            raise InvalidInput("--parts lists what --part-by COLUMN divides: say that as well.")
        return None
    if budget.part is not None:
        raise InvalidInput("--part and --part-by contradict each other.")
    refuse_unfit(sketch, flags)
    return Parts.read(column, listed, output)


def _run_parts(
    sketch: Any,
    parts: Parts,
    flags: SketchFlags,
    budget: BudgetOptions,
    target: Target,
    *,
    overwrite: bool,
    as_json: bool,
) -> None:
    from dpsketch.cli.parts import refuse_unpayable, release_parts, route
    from dpsketch.cli.recipes import stated_type, wanted

    kind, key_type = KINDS[sketch.kind], stated_type(flags)
    plan = planned(sketch, budget, budget.arguments(kind, sketch.spec, key_type))
    refuse_unpayable(parts, target, plan.guarantee.costs, sketch.spec.unit)

    def fill(sketches: dict[str, Any]) -> None:
        with progress_bar("reading") as progress:
            read, outside = route(sketches, flags, wanted(flags, sketch), parts.column, progress)
        left = f", {outside:,} of them in no part that {len(parts.names)} names list" if outside else ""
        say(f"Read {read:,} records{left}. (For your eyes: these numbers are not private.)")

    made = release_parts(
        sketch, parts, budget, target, overwrite=overwrite, fill=fill, columns=_columns(flags),
        arguments=lambda each: budget.arguments(kind, each.spec, key_type),
    )  # fmt: skip
    if as_json:
        target.remember()
        files = {name: str(parts.file(name)) for name in made}
        charges = {name: None if each.charge is None else each.charge.to_json() for name, each in made.items()}
        print_json({"outputs": files, "guarantee": plan.guarantee.to_json(), "charges": charges})
        return
    first = next(iter(made))
    tell(made[first], target, parts.file(first), False, made[first].charge)
    say(f"Wrote {len(made)} releases of {len(made)} parts, the first as {parts.file(first)}.")


@with_groups(flags=SketchFlags)
def build(
    flags: SketchFlags,
    output: OutputOption,
    overwrite: OverwriteOption = False,
    like: Annotated[Path | None, typer.Option("--like", help="Take the spec of this .sketch or .dps.")] = None,
) -> None:
    """Read records into a sensitive partial sketch, to be merged and released later."""
    from dpsketch.cli.recipes import feed, new_sketch, sketch_like, sources_of

    sources_of(flags)
    with Spool.reserve(output, overwrite=overwrite) as spool:
        sketch = new_sketch(flags) if like is None else sketch_like(like, flags, sensitive=True)
        spool.make_room(room_of(sketch))
        with progress_bar("reading") as progress:
            reading = feed(sketch, flags, progress)
        report(reading, sketch)
        # A part that others are built --like must carry what they share, for moments a secret.
        save(spool, sketch.to_shared_bytes(), sensitive=True)
    say(f"Wrote {output}. It is sensitive: only its owner may read it.")


@with_groups(budget=BudgetOptions)
def release(
    budget: BudgetOptions,
    sketch: Annotated[Path, typer.Argument(help="A .sketch file.")],
    output: PlannedOutput = None,
    parties: Annotated[int | None, typer.Option("--parties", help="Release one share of so many; counts only.")] = None,
    honest: Annotated[float, typer.Option("--honest", help="The fraction of parties sure to be honest.")] = 1.0,
    party: Annotated[int | None, typer.Option("--party", help="Which of the parties this is, from 0 on.")] = None,
    overwrite: OverwriteOption = False,
    dry_run: DryRun = False,
    as_json: JsonOption = False,
) -> None:
    """Charge the budget, add noise to a sensitive sketch, and write a release that may be published."""
    from dpsketch import files, privacy

    output = written_to(output, dry_run=dry_run)
    privacy.Budget(**budget.amount)
    budget.refuse_careless()
    if dry_run:
        asked = _releasable(sketch)
        target = budget.target(lambda: source_of_sketch(sketch, asked))
        preview(asked, budget, target, as_json, budget.arguments(KINDS[asked.kind], asked.spec))
        return
    with Spool.reserve(output, overwrite=overwrite) as spool:
        ending = Ending.of(sketch)
        loaded = _releasable(sketch)
        target = budget.target(lambda: source_of_sketch(sketch, loaded))
        spool.make_room(room_of(loaded))
        once = KINDS[files.read(sketch, allow_sensitive=True).kind].released_once
        if once:
            refuse_lasting(sketch)
        options = _share(loaded, parties, honest, party) | budget.arguments(KINDS[loaded.kind], loaded.spec)
        ends = [ending] if once else []
        private = deliver(loaded, budget, target, spool, repeatable=True, ends=ends, options=options)
    tell(private, target, output, as_json, private.charge)
    if once:
        say(f"Destroyed {sketch}: a sketch of this kind is private for one release only.")


def recover(
    output: Annotated[Path, typer.Argument(metavar="FILE", help="The -o of the command that was interrupted.")],
    overwrite: OverwriteOption = False,
) -> None:
    """Put in place a file that an interrupted command had written whole. Nothing is drawn or charged."""
    with Spool.reopen(output, overwrite=overwrite) as spool:
        spool.finish()
    say(f"Put {output} in place.")


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


def _columns(flags: SketchFlags) -> str:
    """Say for the ledger which columns a release was made from."""
    named = {"key": flags.key, "user": flags.user, "weight": flags.weight, "columns": flags.columns}
    return ", ".join(f"{role} {column}" for role, column in named.items() if column is not None)
