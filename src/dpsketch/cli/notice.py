"""What the data holder is told: how much was read and cut, what was charged, written and promised."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsketch.cli.options import Target
from dpsketch.cli.output import print_json, say

if TYPE_CHECKING:
    from dpsketch.bounding import Cut
    from dpsketch.cli.recipes import Reading
    from dpsketch.ledger import Charge
    from dpsketch.privacy import Unit

__all__ = ["report", "tell"]


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
    if as_json:
        paid = None if private.charge is None else private.charge.to_json()
        print_json({"output": str(output), "guarantee": private.guarantee.to_json(), "charge": paid})
    else:
        say(f"Wrote {output}. Guarantee: {private.guarantee}")
