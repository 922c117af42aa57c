"""What a release would cost and be worth, before anything is read; and which kind would answer better."""

from __future__ import annotations

import math
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsketch.cli.options import BudgetOptions, Engine, RelationName, SketchFlags, Target
from dpsketch.cli.output import print_json
from dpsketch.numbers import typed_number
from dpsketch.sketches.kinds import KINDS

if TYPE_CHECKING:
    from dpsketch.sketches.specs import ReleasePreview

DEFAULT_KEYS = 10_000

__all__ = ["better_kind", "planned", "preview"]


def better_kind(flags: SketchFlags, budget: BudgetOptions, output: Path) -> str | None:
    """Return which kind answers the same question better, where one does; by what was asked alone.

    Not on a cluster, where keys may be too many to hold, nor without δ, where names on no list cannot be published.
    """
    instead = KINDS[flags.kind].instead
    if instead is None or flags.engine is not Engine.HERE or not budget.delta:
        return None
    ledger = None if budget.ledger == os.environ.get("DPSKETCH_LEDGER") else budget.ledger
    ledger = "LEDGER" if ledger is not None and "://" in ledger else ledger
    stated = {
        "key": flags.key, "where": flags.where, "sql": flags.sql, "count": flags.count,
        "user": flags.user, "max_keys": flags.max_keys, "weight": flags.weight,
        "max_weight": None if flags.max_weight == 1 else flags.max_weight,
        "key_type": flags.key_type,
        # Another relation has another noise, and another dataset another budget.
        "neighbours": None if flags.neighbours is RelationName.ADD_REMOVE else flags.neighbours.value,
        "epsilon": budget.epsilon, "delta": budget.delta, "dataset": budget.dataset, "part": budget.part,
        "ledger": ledger,
    }  # fmt: skip
    # The address of a database may hold a password.
    words = ["dpsketch", "run", instead, *("SOURCE" if "://" in source else source for source in flags.source or ())]
    for name, value in stated.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", typed_number(value) if isinstance(value, float) else str(value)]
    words += ["--no-ledger"] if budget.no_ledger else []
    said = f"Where one party holds all keys, a {instead} answers better: {shlex.join([*words, '-o', str(output)])}"
    named = "" if KINDS[flags.kind].lists_keys else " (and --keys-from FILE for keys that you name)"
    return said + named


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
    guess = {"records": budget.records, "keys": budget.keys or DEFAULT_KEYS}
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
    if not KINDS[sketch.kind].collides:
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
        stated = f"{budget.records:,} records over {budget.keys or DEFAULT_KEYS:,} keys (the i-th as frequent as 1/i)"
        said = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in expected.items())
        print(f"For {stated}: {said}.")
    if words is not None:
        print(words)
    print("Nothing was read, charged or written.")
