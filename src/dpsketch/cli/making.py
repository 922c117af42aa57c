"""Commands that make sketches and releases: run, build, merge, release; and recover, for what one of them left."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpsketch.cli.daily import Continual, run_day
from dpsketch.cli.delivery import deliver, not_in_place, room_of
from dpsketch.cli.naming import source_of, source_of_sketch
from dpsketch.cli.options import (
    Budget,
    Engine,
    JsonOption,
    OutputOption,
    OverwriteOption,
    SketchFlags,
    Target,
    with_groups,
)
from dpsketch.cli.output import print_json, progress_bar, say
from dpsketch.cli.spool import Ending, Spool
from dpsketch.errors import FileRefused, InvalidInput, ReleaseNotWritten
from dpsketch.sketches.kinds import KINDS

if TYPE_CHECKING:
    from dpsketch.bounding import Cut
    from dpsketch.cli.parting import Parts
    from dpsketch.cli.recipes import Reading
    from dpsketch.privacy import Unit
    from dpsketch.sketches.permit import ReleasePreview

__all__ = ["build", "merge", "recover", "release", "run"]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print cost, noise, error and memory; touch nothing.")]


@with_groups(flags=SketchFlags, budget=Budget)
def run(
    flags: SketchFlags,
    budget: Budget,
    output: OutputOption,
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
        typer.Option("--continual", help="counts: one price for many days, as in days=365,objective=totals."),
    ] = None,
    state: Annotated[
        Path | None, typer.Option("--state", help="The folder that keeps the stream of --continual; sensitive.")
    ] = None,
    day: Annotated[str | None, typer.Option("--day", help="The date to publish of --continual, as 2026-11-15.")] = None,
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

    privacy.Budget(**budget.amount)
    budget.refuse_careless()
    sources = sources_of(flags)
    if (daily := Continual.of(continual, state, day)) is not None:
        if like is not None or part_by is not None or parts is not None or dry_run:
            raise InvalidInput("--continual goes without --like, --part-by, --parts and --dry-run.")
        target = budget.target(lambda: source_of(sources))
        private = run_day(daily, flags, budget, target, output, overwrite=overwrite, report=_report)
        # Charged when it began, whatever today's file would be charged to.
        _tell(private, replace(target, dataset=private.charge and private.charge.dataset), output, as_json)
        return
    sketch = new_sketch(flags, fresh_seed=True) if like is None else sketch_like(like, flags, sensitive=False)
    kind, key_type = KINDS[sketch.kind], stated_type(flags)
    options = budget.arguments(kind, sketch.spec, key_type)
    target = budget.target(lambda: source_of(sources))
    better = None if like is not None or as_json else _better(flags, budget, output)
    divided = _parts(sketch, flags, budget, part_by, parts, output)
    if dry_run:
        asked = target if divided is None or target.ledger is None else replace(target, part=divided.names[0])
        _preview(sketch, budget, asked, as_json, options)
        if better is not None:
            say(better)
        return
    if divided is not None:
        _run_parts(sketch, divided, flags, budget, target, overwrite=overwrite, as_json=as_json)
        return
    with Spool.reserve(output, overwrite=overwrite) as spool:
        spool.make_room(room_of(sketch))
        # A budget that this kind cannot take is refused before an hour of reading, not after it.
        _planned(sketch, budget, options)
        with progress_bar("reading") as progress:
            reading = feed(sketch, flags, progress)
        if better is not None:
            say(better)
        _report(reading, sketch)
        options = budget.arguments(kind, sketch.spec, key_type)  # by now the source has said what its keys are
        private = deliver(sketch, budget, target, spool, columns=_columns(flags), options=options)
    _tell(private, target, output, as_json)


def _parts(
    sketch: Any, flags: SketchFlags, budget: Budget, column: str | None, listed: Path | None, output: Path
) -> Parts | None:
    from dpsketch.cli.parting import Parts, refuse_unfit

    if column is None:
        if listed is not None:
            raise InvalidInput("--parts lists what --part-by COLUMN divides: say that as well.")
        return None
    if budget.part is not None:
        raise InvalidInput("--part and --part-by contradict each other.")
    refuse_unfit(sketch, flags)
    return Parts.read(column, listed, output)


def _run_parts(
    sketch: Any, parts: Parts, flags: SketchFlags, budget: Budget, target: Target, *, overwrite: bool, as_json: bool
) -> None:
    from dpsketch.cli.parting import refuse_unpayable, release_parts, route
    from dpsketch.cli.recipes import stated_type, wanted

    kind, key_type = KINDS[sketch.kind], stated_type(flags)
    plan = _planned(sketch, budget, budget.arguments(kind, sketch.spec, key_type))
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
    _tell(made[first], target, parts.file(first), False)
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
        _report(reading, sketch)
        # A part that others are built --like must carry what they share, for moments a secret.
        _save(spool, sketch.to_shared_bytes(), sensitive=True)
    say(f"Wrote {output}. It is sensitive: only its owner may read it.")


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
    _save(spool, files.encode(together.to_document()), sensitive=False)
    say(f"Merged {len(shares)} shares into {spool.output}. Guarantee: {together.guarantee}")


def _merge_partials(sketches: list[Path], spool: Spool, disjoint_users: bool) -> None:
    from dpsketch import files
    from dpsketch.kinds import load_sensitive

    if len({os.path.realpath(path) for path in sketches}) < len(sketches):
        raise InvalidInput("a .sketch file is given twice, and each of its records would count twice. Name it once.")
    parts = [Ending.of(path) for path in sketches]
    merged = load_sensitive(sketches[0])
    stated = {"disjoint_users": True} if disjoint_users else {}
    for path in sketches[1:]:
        merged.merge(load_sensitive(path), **stated)
    once = KINDS[files.read(sketches[0], allow_sensitive=True).kind].released_once
    if once:
        for path in sketches:
            _refuse_lasting(path)
    _save(spool, merged.to_sensitive_bytes(), sensitive=True, ends=parts if once else [])
    say(f"Merged {len(sketches)} sketches into {spool.output}.")
    if once:
        say("Destroyed the parts: they share one secret, which is good for one release only.")


@with_groups(budget=Budget)
def release(
    budget: Budget,
    sketch: Annotated[Path, typer.Argument(help="A .sketch file.")],
    output: OutputOption,
    parties: Annotated[int | None, typer.Option("--parties", help="Release one share of so many; counts only.")] = None,
    honest: Annotated[float, typer.Option("--honest", help="The fraction of parties sure to be honest.")] = 1.0,
    party: Annotated[int | None, typer.Option("--party", help="Which of the parties this is, from 0 on.")] = None,
    overwrite: OverwriteOption = False,
    dry_run: DryRun = False,
    as_json: JsonOption = False,
) -> None:
    """Charge the budget, add noise to a sensitive sketch, and write a release that may be published."""
    from dpsketch import files, privacy

    privacy.Budget(**budget.amount)
    budget.refuse_careless()
    if dry_run:
        asked = _releasable(sketch)
        target = budget.target(lambda: source_of_sketch(sketch, asked))
        _preview(asked, budget, target, as_json, budget.arguments(KINDS[asked.kind], asked.spec))
        return
    with Spool.reserve(output, overwrite=overwrite) as spool:
        ending = Ending.of(sketch)
        loaded = _releasable(sketch)
        target = budget.target(lambda: source_of_sketch(sketch, loaded))
        spool.make_room(room_of(loaded))
        once = KINDS[files.read(sketch, allow_sensitive=True).kind].released_once
        if once:
            _refuse_lasting(sketch)
        options = _share(loaded, parties, honest, party) | budget.arguments(KINDS[loaded.kind], loaded.spec)
        ends = [ending] if once else []
        private = deliver(loaded, budget, target, spool, repeatable=True, ends=ends, options=options)
    _tell(private, target, output, as_json)
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


def _better(flags: SketchFlags, budget: Budget, output: Path) -> str | None:
    """Return which kind answers the same question better, where one does; by what was asked alone.

    Not on a cluster, where keys may be too many to hold, nor without δ, where names on no list cannot be published.
    """
    instead = KINDS[flags.kind].instead
    if instead is None or flags.engine is not Engine.HERE or not budget.delta:
        return None
    stated = {
        "key": flags.key, "where": flags.where, "sql": flags.sql, "count": flags.count,
        "user": flags.user, "max_keys": flags.max_keys, "weight": flags.weight,
        "max_weight": None if flags.max_weight == 1 else f"{flags.max_weight:g}",
        "key_type": flags.key_type, "epsilon": budget.epsilon, "delta": budget.delta,
    }  # fmt: skip
    # The address of a database may hold a password.
    words = ["dpsketch", "run", instead, *("SOURCE" if "://" in source else source for source in flags.source or ())]
    for name, value in stated.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", f"{value:g}" if isinstance(value, float) else str(value)]
    said = f"Where one party holds all keys, a {instead} answers better: {shlex.join([*words, '-o', str(output)])}"
    named = "" if KINDS[flags.kind].lists_keys else " (and --keys-from FILE for keys that you name)"
    return said + named


def _releasable(path: Path) -> Any:
    from dpsketch.kinds import load_sensitive

    loaded = load_sensitive(path)
    if not hasattr(loaded, "release"):
        raise InvalidInput(f"a {type(loaded).__name__} was charged when it began, and publishes from Python only.")
    return loaded


def _refuse_lasting(path: Path) -> None:
    """Refuse to begin with a file that will have to be destroyed and cannot be."""
    if not (os.access(path, os.W_OK) and os.access(Path(os.path.realpath(path)).parent, os.W_OK)):
        raise FileRefused(f"{path} must be destroyed when it is used, and may not be written. Make it writable.")


def _save(spool: Spool, data: bytes, *, sensitive: bool, ends: Sequence[Ending] = ()) -> None:
    """Write a file that nothing was paid for."""
    try:
        spool.fit(data, ends)
        spool.write(data, sensitive=sensitive)
        spool.finish()
    except BaseException as error:
        if not spool.complete:
            raise
        raise ReleaseNotWritten(not_in_place(spool, error)) from error


def _report(reading: Reading, sketch: Any) -> None:
    from dpsketch.sketches.accumulating import Accumulator

    if reading.records == 0:
        say("Note: the source holds no records; the release will hold noise alone.")
    skipped = f", {reading.skipped:,} of them skipped because a value is missing" if reading.skipped else ""
    say(f"Read {reading.records:,} records{skipped}. (For your eyes: this number is not private.)")
    if isinstance(sketch, Accumulator):
        _report_cut(sketch.cut, sketch.spec.unit)


def _report_cut(cut: Cut, unit: Unit) -> None:
    """Tell the data holder, and nobody else, how much the bounds of the unit cut."""
    if cut.left_out:
        share = _percent(cut.left_out / cut.records)
        say(f"For your eyes: {share} of the records were cut by --max-keys {unit.max_keys}.")
    if cut.counted < cut.offered:
        share = _percent(1 - cut.counted / cut.offered)
        if unit.level == "record":
            heavy = _percent(cut.too_heavy / cut.records)
            above = (
                f"{heavy} of the records had a weight above {unit.max_weight:g}, which cut {share} of the total weight"
            )
            say(f"For your eyes: {above}. --max-weight sets the bound; --count reads rows that stand for many records.")
        else:
            say(
                f"For your eyes: {share} of the total weight does not count, by --max-keys {unit.max_keys} and by "
                f"--max-weight {unit.max_weight:g} on each key of a user."
            )


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "less than 1%"


def _share(sketch: Any, parties: int | None, honest: float, party: int | None) -> dict[str, Any]:
    """Read the options about several parties; empty where there is one."""
    if parties is None:
        return {}
    from dpsketch.sketches.countsketch import CountSketch, Share

    if not isinstance(sketch, CountSketch):
        raise InvalidInput("--parties shares the noise of counts; this is another kind of sketch.")
    return {"share": Share(parties, honest, party)}


def _tell(private: Any, target: Target, output: Path, as_json: bool) -> None:
    """Say what was charged, written and promised."""
    target.remember()
    if target.note is not None:
        say(target.note)
    if target.ledger is not None and target.dataset is not None:
        spent = target.ledger.spent(target.dataset)
        if spent.total is None:
            say(
                f"Charged to dataset {target.dataset!r}, which has no total: nothing will ever be refused. "
                "Set one with `dpsketch ledger create`."
            )
        else:
            part = "" if target.part is None else f", part {target.part!r}"
            say(f"Charged to dataset {target.dataset!r}{part}: {spent.words}.")
    else:
        say("Charged to no ledger: this release is tracked nowhere.")
    if as_json:
        charge = None if private.charge is None else private.charge.to_json()
        print_json({"output": str(output), "guarantee": private.guarantee.to_json(), "charge": charge})
    else:
        say(f"Wrote {output}. Guarantee: {private.guarantee}")


def _planned(sketch: Any, budget: Budget, options: dict[str, Any]) -> ReleasePreview:
    """Say what a release would be, by the spec; of several moments, the one with the largest error."""
    if hasattr(sketch, "preview"):
        together: list[ReleasePreview] = sketch.preview(**budget.amount)
        return max(together, key=lambda each: each.predicted_error)
    plan: ReleasePreview = sketch.spec.preview(**budget.amount, **options)
    return plan


def _preview(sketch: Any, budget: Budget, target: Target, as_json: bool, options: dict[str, Any]) -> None:
    """Print what a release would cost and be worth, touching no budget."""
    plan = _planned(sketch, budget, options)
    answer: dict[str, Any] = {
        "mechanism": plan.guarantee.mechanism,
        "guarantee": plan.guarantee.to_json(),
        "noise_scale": plan.noise_scale if math.isfinite(plan.noise_scale) else None,
        "predicted_error": plan.predicted_error if math.isfinite(plan.predicted_error) else None,
        "memory_bytes": sketch.spec.memory,
        "dataset": target.dataset,
    }
    words = None
    if target.ledger is not None and target.dataset is not None:
        preview = target.ledger.preview(target.dataset, plan.guarantee.costs, unit=sketch.spec.unit, part=target.part)
        answer["budget"] = preview.to_json()
        words = preview.words
    if as_json:
        print_json(answer)
        return
    print(f"Would release: {plan.guarantee}")
    if not KINDS[sketch.kind].collides:
        print(f"Mechanism: {plan.guarantee.mechanism}.")
        known = math.isfinite(plan.predicted_error)
        print(f"Error of a count: standard deviation {plan.predicted_error:.4g}." if known else "There are no counts.")
        print(f"Memory grows with the keys: about {sketch.spec.memory:,} bytes for 10,000.")
    else:
        print(f"Noise: standard deviation {plan.noise_scale:.4g} in one counter.")
        print(
            "Error of an estimate from noise alone: standard deviation "
            f"{plan.predicted_error:.4g}; collisions add to it."
        )
        print(f"Memory of the sketch: {sketch.spec.memory:,} bytes.")
    if words is not None:
        print(words)
    print("Nothing was read, charged or written.")


def _columns(flags: SketchFlags) -> str:
    """Say for the ledger which columns a release was made from."""
    named = {"key": flags.key, "user": flags.user, "weight": flags.weight, "columns": flags.columns}
    return ", ".join(f"{role} {column}" for role, column in named.items() if column is not None)
