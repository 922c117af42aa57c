"""Commands that make sketches and releases: run, build, merge, release."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from dpsketch.cli.options import Budget, JsonOption, OutputOption, SketchFlags, Target, with_groups
from dpsketch.cli.output import print_json, progress_bar, say
from dpsketch.errors import FileRefused, InvalidInput

if TYPE_CHECKING:
    from dpsketch.bounding import Cut
    from dpsketch.cli.recipes import Reading
    from dpsketch.privacy import Unit
    from dpsketch.sketches.releasing import ReleasePreview

__all__ = ["build", "merge", "release", "run"]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Print cost, noise, error and memory; touch nothing.")]


@with_groups(flags=SketchFlags, budget=Budget)
def run(
    flags: SketchFlags,
    budget: Budget,
    output: OutputOption,
    like: Annotated[
        Path | None, typer.Option("--like", help="Take the spec of this .dps, its seed too, so that days subtract.")
    ] = None,
    dry_run: DryRun = False,
    as_json: JsonOption = False,
) -> None:
    """Read records, sketch them, charge the budget, and write a release that may be published.

    Without --seed and --like the hash functions get a fresh seed, which the release says: whichever key they treat
    badly, it is another one in the next release.
    """
    from dpsketch.cli.recipes import feed, new_sketch, sketch_like
    from dpsketch.privacy import requested

    requested(**budget.amount)
    sketch = new_sketch(flags, fresh_seed=True) if like is None else sketch_like(like, flags, sensitive=False)
    target = budget.target(lambda: _dataset_name(flags.source))
    if dry_run:
        _preview(sketch, budget, target, as_json)
        return
    _writable(output)
    # A budget that this kind cannot take is refused before an hour of reading, not after it.
    _planned(sketch, budget)
    with progress_bar("reading") as progress:
        reading = feed(sketch, flags, progress)
    _report(reading, sketch)
    _release(sketch, budget, target, output, as_json)


@with_groups(flags=SketchFlags)
def build(
    flags: SketchFlags,
    output: OutputOption,
    like: Annotated[Path | None, typer.Option("--like", help="Take the spec of this .sketch or .dps.")] = None,
) -> None:
    """Read records into a sensitive partial sketch, to be merged and released later."""
    from dpsketch.cli.recipes import feed, new_sketch, sketch_like
    from dpsketch.kinds import KINDS

    _writable(output)
    sketch = new_sketch(flags) if like is None else sketch_like(like, flags, sensitive=True)
    with progress_bar("reading") as progress:
        reading = feed(sketch, flags, progress)
    _report(reading, sketch)
    # A part that others are built --like must carry what they share, for moments a secret.
    shared = {"include_secret": True} if KINDS[flags.kind.value].released_once else {}
    sketch.save_sensitive(output, **shared)
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
) -> None:
    """Merge partial sketches, as one pass over all their records; or the released shares of several parties."""
    from dpsketch import files
    from dpsketch.kinds import KINDS, load, load_sensitive
    from dpsketch.sketches.countsketch import merge_releases

    if len(sketches) < 2:
        raise InvalidInput("merge needs two or more files.")
    _writable(output)
    if not files.read(sketches[0], allow_sensitive=True).sensitive:
        together = merge_releases([load(path) for path in sketches], missing=missing, disjoint_users=disjoint_users)
        together.save(output)
        say(f"Merged {len(sketches)} shares into {output}. Guarantee: {together.guarantee}")
        return
    if len({os.path.realpath(path) for path in sketches}) < len(sketches):
        raise InvalidInput("a .sketch file is given twice, and each of its records would count twice. Name it once.")
    merged = load_sensitive(sketches[0])
    stated = {"disjoint_users": True} if disjoint_users else {}
    for path in sketches[1:]:
        merged.merge(load_sensitive(path), **stated)
    once = KINDS[files.read(sketches[0], allow_sensitive=True).kind].released_once
    merged.save_sensitive(output)
    say(f"Merged {len(sketches)} sketches into {output}.")
    if once:
        for path in sketches:
            if os.path.realpath(path) != os.path.realpath(output):
                _destroy(path)
        say("Destroyed the parts: they share one secret, which is good for one release only.")


@with_groups(budget=Budget)
def release(
    budget: Budget,
    sketch: Annotated[Path, typer.Argument(help="A .sketch file.")],
    output: OutputOption,
    parties: Annotated[int | None, typer.Option("--parties", help="Release one share of so many; counts only.")] = None,
    honest: Annotated[float, typer.Option("--honest", help="The fraction of parties sure to be honest.")] = 1.0,
    party: Annotated[int | None, typer.Option("--party", help="Which of the parties this is, from 0 on.")] = None,
    dry_run: DryRun = False,
    as_json: JsonOption = False,
) -> None:
    """Charge the budget, add noise to a sensitive sketch, and write a release that may be published."""
    from dpsketch import files
    from dpsketch.kinds import KINDS, load_sensitive
    from dpsketch.privacy import requested

    requested(**budget.amount)
    loaded = load_sensitive(sketch)
    if not hasattr(loaded, "release"):
        raise InvalidInput(f"a {type(loaded).__name__} was charged when it began, and publishes from Python only.")
    target = budget.target(lambda: sketch.name)
    if dry_run:
        _preview(loaded, budget, target, as_json)
        return
    _writable(output)
    _release(loaded, budget, target, output, as_json, _share(loaded, parties, honest, party))
    if KINDS[files.read(sketch, allow_sensitive=True).kind].released_once:
        _destroy(sketch)
        say(f"Destroyed {sketch}: a sketch of this kind is private for one release only.")


def _destroy(path: Path) -> None:
    """Overwrite a sensitive file and remove it."""
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()


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
            say(f"For your eyes: {above}. --max-weight sets the bound.")
        else:
            say(
                f"For your eyes: {share} of the total weight does not count, by --max-keys {unit.max_keys} and by "
                f"--max-weight {unit.max_weight:g} on each key of a user."
            )


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "less than 1%"


def _share(sketch: Any, parties: int | None, honest: float, party: int | None) -> dict[str, Any]:
    """Read the options about several parties; empty where there is one."""
    from dpsketch.sketches.countsketch import CountSketch, Share

    if parties is None:
        return {}
    if not isinstance(sketch, CountSketch):
        raise InvalidInput("--parties shares the noise of counts; this is another kind of sketch.")
    return {"share": Share(parties, honest, party)}


def _release(
    sketch: Any,
    budget: Budget,
    target: Target,
    output: Path,
    as_json: bool,
    share: dict[str, Any] | None = None,
) -> None:
    private = sketch.release(**budget.amount, ledger=target.ledger, dataset=target.dataset, **(share or {}))
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


def _planned(sketch: Any, budget: Budget) -> ReleasePreview:
    """Say what a release would be, by the spec; of several moments, the one with the largest error."""
    if hasattr(sketch, "preview"):
        together: list[ReleasePreview] = sketch.preview(**budget.amount)
        return max(together, key=lambda each: each.predicted_error)
    plan: ReleasePreview = sketch.spec.preview(**budget.amount)
    return plan


def _preview(sketch: Any, budget: Budget, target: Target, as_json: bool) -> None:
    """Print what a release would cost and be worth, touching no budget."""
    plan = _planned(sketch, budget)
    answer: dict[str, Any] = {
        "mechanism": plan.guarantee.mechanism,
        "guarantee": plan.guarantee.to_json(),
        "noise_scale": plan.noise_scale,
        "predicted_error": plan.predicted_error,
        "memory_bytes": sketch.spec.memory,
        "dataset": target.dataset,
    }
    words = None
    if target.ledger is not None and target.dataset is not None:
        preview = target.ledger.preview(target.dataset, plan.guarantee.costs, unit=sketch.spec.unit)
        answer["budget"] = preview.to_json()
        words = preview.words
    if as_json:
        print_json(answer)
        return
    print(f"Would release: {plan.guarantee}")
    print(f"Noise: standard deviation {plan.noise_scale:.4g} in one counter.")
    print(
        f"Error of an estimate from noise alone: standard deviation {plan.predicted_error:.4g}; collisions add to it."
    )
    print(f"Memory of the sketch: {sketch.spec.memory:,} bytes.")
    if words is not None:
        print(words)
    print("Nothing was read, charged or written.")


def _dataset_name(source: list[str]) -> str:
    """Name a dataset after its only source; not after several, as the name is published and they may name people."""
    if len(source) > 1:
        return "several sources"
    location = source[0]
    if "://" in location:
        location = urlsplit(location).path  # never the user and the password before it
    return "standard input" if location == "-" else Path(location).name or "a database"


def _writable(output: Path) -> None:
    """Find out before any budget is spent whether the output can be written."""
    folder = output.parent
    if output.is_dir():
        raise FileRefused(f"cannot write {output}: it is a folder. Name a file.")
    if not folder.is_dir():
        raise FileRefused(f"cannot write {output}: the folder {folder} does not exist.")
    if not os.access(folder, os.W_OK):
        raise FileRefused(f"cannot write {output}: the folder {folder} is not writable.")
