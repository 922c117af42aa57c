"""One release for each part of a dataset, such as its days, in one pass over the records.

Which parts there are is public: it comes from a list, never from the records. Each part gets a sketch of the same spec,
an empty one where it has no records, so that neither the number of files nor what they state tells who is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsketch.cli.delivery import deliver, room_of
from dpsketch.cli.exits import about_data
from dpsketch.cli.notices import planned, tell
from dpsketch.cli.options import read_lines
from dpsketch.cli.output import print_json, progress_bar, say
from dpsketch.cli.recipes import SketchOptions, sources_of, wanted
from dpsketch.cli.spool import Spool
from dpsketch.errors import BudgetExceeded, InvalidInput
from dpsketch.privacy import Cost
from dpsketch.sketches.kinds import KINDS

if TYPE_CHECKING:
    from dpsketch.cli.budget import BudgetOptions, Target
    from dpsketch.sources import Batch, Progress

__all__ = ["Parts", "run_parts"]

_PLACE = "{part}"


@dataclass(frozen=True, slots=True)
class Parts:
    """Which parts are released, by which column, and where to.

    Attributes
    ----------
    column : str
        The column whose value names a record's part.
    names : tuple of str
        The parts, from a public list.
    output : str
        The files, with ``{part}`` for a part's name, or the folder that they go to.
    """

    column: str
    names: tuple[str, ...]
    output: str

    @classmethod
    def read(
        cls, column: str | None, listed: Path | None, output: Path, flags: SketchOptions, budget: BudgetOptions
    ) -> Parts:
        """Read the list of names, one per line; refuse what cannot be divided by a column of its records."""
        if column is None:
            raise InvalidInput("--parts lists the parts of --part-by COLUMN: say that as well.")
        if budget.part is not None:
            raise InvalidInput("--part and --part-by contradict each other.")
        if flags.user is not None:
            raise InvalidInput("--part-by divides records. Users may be in several parts: run one --part at a time.")
        if flags.engine != "here":
            raise InvalidInput("--part-by reads here: leave --engine out, or run one --part at a time.")
        if listed is None:
            raise InvalidInput(
                "--part-by needs --parts FILE: parts are named by a public list, not by the records. Where nobody "
                "knows their names, a histogram finds them, for its own budget: its names are then the list (dpsketch "
                f"run histogram … --key {column}). Or count both as one key: --key {column},KEY."
            )
        names = read_lines(listed)
        if not names or len(set(names)) < len(names):
            raise InvalidInput(f"{listed} must name one part a line, each once.")
        if any("/" in name or "\\" in name or name.startswith(".") for name in names):
            raise InvalidInput("parts name files: none can begin with a dot or hold a slash.")
        return cls(column, tuple(names), str(output))

    def file(self, name: str) -> Path:
        """Return where a part's release is written."""
        return Path(self.output.replace(_PLACE, name)) if _PLACE in self.output else Path(self.output) / f"{name}.dps"


def run_parts(
    sketch: Any, parts: Parts, flags: SketchOptions, budget: BudgetOptions, target: Target, *, overwrite: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Take the room of all files, fill a sketch for each part in one pass, and release one after the other."""
    kind = KINDS[sketch.kind]
    plan = planned(sketch, budget, budget.arguments(kind, sketch.spec, flags.key_type))
    _refuse_unpayable(parts, target, plan.guarantee.costs, sketch.spec.unit)
    with ExitStack() as places:
        spools = {}
        for name in parts.names:
            parts.file(name).parent.mkdir(parents=True, exist_ok=True)
            spools[name] = places.enter_context(Spool.reserve(parts.file(name), overwrite=overwrite))
            spools[name].make_room(room_of(sketch))
        sketches = {name: sketch.empty_like() for name in parts.names}
        with progress_bar("reading") as progress:
            read, outside = _route(sketches, flags, parts.column, sketch, progress)
        left = f", {outside:,} of them in no part that {len(parts.names)} names list" if outside else ""
        say(f"Read {read:,} records{left}. (For your eyes: these numbers are not private.)")
        made = {
            name: deliver(
                each,
                budget,
                target if target.ledger is None else replace(target, part=name),
                spools[name],
                columns=flags.named_columns,
                options=budget.arguments(kind, each.spec, flags.key_type),
            )
            for name, each in sketches.items()
        }
    if as_json:
        target.remember()
        files = {name: str(parts.file(name)) for name in made}
        charges = {name: None if each.charge is None else each.charge.to_json() for name, each in made.items()}
        print_json({"outputs": files, "guarantee": plan.guarantee.to_json(), "charges": charges})
        return
    first = next(iter(made))
    tell(made[first], target, parts.file(first), False, made[first].charge)
    say(f"Wrote {len(made)} releases of {len(made)} parts, the first as {parts.file(first)}.")


def _refuse_unpayable(parts: Parts, target: Target, costs: Sequence[Cost], unit: Any) -> None:
    """Refuse before anything is read if some part cannot be paid for."""
    if target.ledger is None or target.dataset is None:
        return
    for name in parts.names:
        preview = target.ledger.preview(target.dataset, costs, unit=unit, part=name)
        if not preview.allowed:
            raise BudgetExceeded(preview.words)


def _route(
    sketches: dict[str, Any],
    flags: SketchOptions,
    column: str,
    sketch: Any,
    progress: Callable[[Progress], None] | None,
) -> tuple[int, int]:
    """Add every record to the sketch of its part; return how many were read, and how many are in no part."""
    from dpsketch.sketches.feed import add_batch
    from dpsketch.sources import open_source

    names = list(sketches)
    read = outside = 0
    # A part's name is read as a user's is: never null, and a record without one is left out.
    columns = replace(wanted(flags, sketch), user=column)
    for batch in open_source(sources_of(flags), columns, stdin_format=flags.stdin_format, progress=progress):
        read += batch.rows + batch.skipped
        outside += batch.skipped
        for name, share in zip([*names, None], _divided(batch, names), strict=True):
            if name is None:
                outside += share.rows
            elif share.rows or share.key is not None:  # a batch without rows still says what its keys are
                with about_data():
                    add_batch(sketches[name], share)
    return read, outside


def _divided(batch: Batch, names: list[str]) -> list[Batch]:
    """Divide a batch by the names of parts; the last share is of none of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    named: Any = batch.user
    stated = pa.array(names, pa.string())
    # Bytes name a part by what they are; everything else by its text.
    stated, named = (
        (stated.cast(pa.binary()), named) if pa.types.is_binary(named.type) else (stated, pc.cast(named, pa.string()))
    )
    found = pc.index_in(named, value_set=stated)
    codes = np.asarray(pc.fill_null(found, len(names)))
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(names) + 1), side="right").tolist()
    return [_picked(batch, pa.array(order[start:end])) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _picked(batch: Batch, rows: Any) -> Batch:
    """Return the rows of a batch at the given places, without the names of parts."""
    key, weight, count = (None if each is None else each.take(rows) for each in (batch.key, batch.weight, batch.count))
    points = tuple(each.take(rows) for each in batch.points)
    return replace(batch, key=key, user=None, weight=weight, count=count, points=points, rows=len(rows), skipped=0)
