"""Messages to the data holder about a release: what it would cost, what was read and cut, charged and written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsketch.cli.output import print_json, say
from dpsketch.sketches.kinds import KINDS

if TYPE_CHECKING:
    from dpsketch.bounding import Cut
    from dpsketch.cli.budget import BudgetOptions, Target
    from dpsketch.cli.recipes import Reading, SketchOptions
    from dpsketch.ledger import Charge
    from dpsketch.privacy import Unit
    from dpsketch.sketches.specs import ReleasePreview

__all__ = ["better_kind", "planned", "preview", "report", "tell", "tell_charge"]

_DEFAULT_KEYS = 10_000


def better_kind(flags: SketchOptions, budget: BudgetOptions) -> str | None:
    """Return which kind answers the same question better, where one does; by the options alone.

    There is none on a cluster, where keys may be too many to hold, nor without δ, where names on no list cannot be
    published.
    """
    instead = KINDS[flags.kind].instead
    if instead is None or flags.engine != "here" or not budget.delta:
        return None
    named = "" if KINDS[flags.kind].lists_keys else " (and --keys-from FILE for keys that you name)"
    return (
        f"Where one party holds all keys, a {instead} answers better: dpsketch run {instead} with the same key, unit "
        f"and budget{named}."
    )


def planned(sketch: Any, budget: BudgetOptions, options: dict[str, Any]) -> ReleasePreview:
    """Say what a release would be, by the spec; of several moments, the one with the largest error."""
    if hasattr(sketch, "preview"):
        together: list[ReleasePreview] = sketch.preview(**budget.amount)
        return max(together, key=lambda each: each.predicted_error)
    plan: ReleasePreview = sketch.spec.preview(**budget.amount, **options)
    return plan


def preview(sketch: Any, budget: BudgetOptions, target: Target, as_json: bool, options: dict[str, Any]) -> None:
    """Print what a release would cost and be worth, touching no budget."""
    plan = planned(sketch, budget, options)
    answer: dict[str, Any] = {
        "mechanism": plan.guarantee.mechanism,
        "guarantee": plan.guarantee.to_json(),
        "noise_scale": plan.noise_scale if math.isfinite(plan.noise_scale) else None,
        "predicted_error": plan.predicted_error if math.isfinite(plan.predicted_error) else None,
        "memory_bytes": sketch.spec.memory,
        "dataset": target.dataset,
    }
    words = None
    guess = {"records": budget.records, "keys": budget.keys or _DEFAULT_KEYS}
    expected: dict[str, float] = {}
    if budget.records is not None and hasattr(sketch.spec, "expect"):
        expected = sketch.spec.expect(**budget.amount, **guess)
        answer |= {"expected": {**guess, **expected}}
    if target.ledger is not None and target.dataset is not None:
        cost = target.ledger.preview(target.dataset, plan.guarantee.costs, unit=sketch.spec.unit, part=target.part)
        answer["budget"] = cost.to_json()
        words = cost.words
    if as_json:
        print_json(answer)
        return
    print(f"Would release: {plan.guarantee}")
    if KINDS[sketch.kind].reads == "groups":
        print(f"Error of a head count: standard deviation {plan.predicted_error:.4g}.")
        print(f"Memory grows with the records: about {sketch.spec.memory:,} bytes for 100,000.")
    elif not KINDS[sketch.kind].collides:
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
    if expected:
        stated = f"{budget.records:,} records over {budget.keys or _DEFAULT_KEYS:,} keys (the i-th as frequent as 1/i)"
        said = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in expected.items())
        print(f"For {stated}: {said}.")
    if words is not None:
        print(words)
    print("Nothing was read, charged or written.")


def report(reading: Reading, sketch: Any) -> None:
    """Tell the data holder, and nobody else, how many records there were and what was cut of them."""
    from dpsketch.sketches.sketch import Sketch

    if reading.records == 0:
        say("Note: the source holds no records; the release will hold noise alone.")
    skipped = f", {reading.skipped:,} of them skipped because a value is missing" if reading.skipped else ""
    say(f"Read {reading.records:,} records{skipped}. (For your eyes: this number is not private.)")
    if isinstance(sketch, Sketch):
        _report_cut(sketch.cut, sketch.spec.unit, sketch.cut_words)


def _report_cut(cut: Cut, unit: Unit, what: str) -> None:
    """Tell the data holder, and nobody else, how much the bounds of the unit cut."""
    if cut.left_out:
        share = _percent(cut.left_out / cut.records)
        say(f"For your eyes: {share} of the {what} were cut by --max-keys {unit.max_keys}.")
    if cut.counted < cut.offered:
        share = _percent(1 - cut.counted / cut.offered)
        if unit.level == "record":
            heavy = _percent(cut.too_heavy / cut.records)
            above = (
                f"{heavy} of the records had a weight above {unit.max_weight:g}, which cut {share} of the total weight"
            )
            say(f"For your eyes: {above}. --max-weight sets the bound; --count reads rows that stand for many records.")
        else:
            keys = "" if unit.chosen else f"--max-keys {unit.max_keys} and by "
            weight = f"--max-weight {unit.max_weight:g} on each key of a user"
            say(f"For your eyes: {share} of the total weight does not count, by {keys}{weight}.")


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 else "less than 1%"


def tell(private: Any, target: Target, output: Path, as_json: bool, charge: Charge | None) -> None:
    """Say what was charged, written and promised; without a ``charge`` to a ledger, that it was paid for before."""
    tell_charge(target, charge)
    if as_json:
        paid = None if private.charge is None else private.charge.to_json()
        print_json({"output": str(output), "guarantee": private.guarantee.to_json(), "charge": paid})
    else:
        say(f"Wrote {output}. Guarantee: {private.guarantee}")


def tell_charge(target: Target, charge: Charge | None) -> None:
    """Say what was charged, and to which dataset; have the ledger know the source from now on."""
    target.remember()
    if target.note is not None:
        say(target.note)
    if target.ledger is not None and target.dataset is not None:
        if charge is None:
            say(f"Nothing was charged: dataset {target.dataset!r} paid for all days when the stream began.")
        elif charge.total is None:
            say(
                f"Charged to dataset {target.dataset!r}, which has no total: nothing will ever be refused. "
                "Set one with `dpsketch ledger create`."
            )
        else:
            part = "" if target.part is None else f", part {target.part!r}"
            say(f"Charged to dataset {target.dataset!r}{part}: {target.ledger.spent(target.dataset).words}.")
    else:
        say("Charged to no ledger: this release is tracked nowhere.")
