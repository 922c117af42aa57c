"""A day of a stream from the command line: ``run KIND … --continual days=365 --state DIR --day 2026-11-15``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsketch.cli.columns import key_parts
from dpsketch.cli.options import BudgetOptions, Engine, KeyKind, SketchFlags, Target, unit_from
from dpsketch.cli.output import progress_bar, say
from dpsketch.cli.spool import Spool
from dpsketch.errors import InvalidInput
from dpsketch.sketches.kinds import KINDS

if TYPE_CHECKING:
    from dpsketch.cli.recipes import Reading
    from dpsketch.ledger import Charge
    from dpsketch.sketches.continual.folder import StreamFolder

__all__ = ["Continual", "run_day"]

_BY_TYPE = ("counts", "histogram")  # their days must not differ by the type of keys
# A longer gap is rather a mistake in a date.
_LONGEST_GAP = 31
_NAMES = {"days": int, "objective": str, "user_days": int, "days_apart": int, "design": str}


@dataclass(frozen=True, slots=True)
class Continual:
    """What --continual, --state and --day say together.

    Attributes
    ----------
    given : dict
        The options of a stream that is to begin.
    state : Path
        Its folder.
    day : str
        The date of the day that is to be published.
    """

    given: dict[str, Any]
    state: Path
    day: str

    @classmethod
    def of(cls, continual: str | None, state: Path | None, day: str | None) -> Continual:
        """Read the three options, of which at least one is given."""
        if continual is None or state is None or day is None:
            raise InvalidInput("--continual, --state and --day go together: days=365, a folder, and a date.")
        given: dict[str, Any] = {}
        for item in continual.split(","):
            name, _, value = item.partition("=")
            name = name.strip().replace("-", "_")
            if name not in _NAMES or name in given or not value:
                raise InvalidInput(
                    "--continual takes days=365, and objective=totals, user-days=12, days-apart=30, design=pan-private "
                    "after commas."
                )
            given[name] = _read(name, value.strip())
        if "days" not in given:
            raise InvalidInput("--continual needs days=, the number of days that will be published, or days=endless.")
        return cls(given, state, day)


def _read(name: str, value: str) -> Any:
    if name == "days" and value == "endless":
        return None
    if _NAMES[name] is str:
        return value
    if not value.isdecimal():
        raise InvalidInput(f"--continual {name.replace('_', '-')}= is a whole number.")
    return int(value)


def run_day(
    asked: Continual,
    flags: SketchFlags,
    budget: BudgetOptions,
    target: Target,
    output: Path,
    *,
    overwrite: bool,
    series: Path | None,
    report: Callable[[Reading, Any], None],
) -> tuple[Any, Charge | None]:
    """Publish a day: begin the stream where there is none, read the day's records, and write the total so far.

    Return the release, and what was charged where the stream began with it.

    Days between the last one and this are published as days without records, so that dates and numbers agree. A day
    that was published before is answered from the state: its records are not read again, and nothing is drawn.
    """
    from dpsketch.cli.recipes import feed
    from dpsketch.sketches.continual.folder import StreamFolder

    if not KINDS[flags.kind].daily:
        names = ", ".join(name for name, kind in KINDS.items() if kind.daily)
        raise InvalidInput(f"--continual publishes {names}: other kinds are released once a day, each at its price.")
    if flags.engine is not Engine.HERE:
        raise InvalidInput("--continual counts here: leave --engine out.")
    if flags.key is not None and len(key_parts(flags.key)) > 1:
        raise InvalidInput(
            "--continual takes one column as --key. Join several in one, as in --key \"concat(a, ' ', b)\"."
        )
    if series is not None and series.resolve().parent == asked.state.resolve():
        raise InvalidInput("--series is public and --state is not: write it to another folder, which may be served.")
    folder = StreamFolder(asked.state, ledger=target.ledger)
    with folder.held(), Spool.reserve(output, overwrite=overwrite) as spool:
        charge = None if folder.exists else _begin(folder, asked, _typed(flags), budget, target)
        sketch = folder.load()
        _refuse_other(sketch, asked, flags, budget)
        _refuse_other_account(sketch, asked, budget, target)
        number = sketch.number_of(asked.day)
        if number < 1:
            raise InvalidInput(f"{asked.day} is before the first day of this stream, {sketch.first_day}.")
        if number > sketch.days_published + _LONGEST_GAP:
            raise InvalidInput(
                f"{asked.day} is more than {_LONGEST_GAP} days after the last that was published. Days between are "
                "published without records and use up the stream: if that is meant, name a day in between first."
            )
        if series is not None:
            _refuse_other_series(series, output, sketch)
        if number <= sketch.days_published:
            say(f"{asked.day} was published before: answered from {asked.state}. Nothing was read or drawn.")
            private = sketch.between(1, number)
        else:
            with progress_bar("reading") as progress:
                # In memory: should the day's records not be read, these days were seen by nobody and are not published.
                for _ in range(sketch.days_published + 1, number):
                    sketch.publish_day()
                before = sketch.skipped_nulls  # of earlier days
                reading = feed(sketch, flags, progress)
            report(replace(reading, skipped=reading.skipped - before), sketch)
            private = folder.publish(sketch)
        _write(private, spool)
        if series is not None:
            # As a whole, in the place of the one of the day before: a service that reads the folder sees either.
            sketch.series().save(series)
    return private, charge


def _begin(
    folder: StreamFolder, asked: Continual, flags: SketchFlags, budget: BudgetOptions, target: Target
) -> Charge | None:
    """Charge for all days, and write the first state; interrupted between, the same command uses the charge again."""
    from dpsketch.ledger import Payment, binding_of

    token, payment = folder.token(), None
    if target.ledger is not None:
        stated = {name: repr(value) for name, value in asked.given.items()}
        payment = Payment(target.ledger, binding_of(frozenset({token}), budget=budget.amount, stream=stated))
    folder.begin(_begun(asked, _seeded(flags, int(token[:15], 16)), budget, replace(target, ledger=payment)))
    if payment is None:
        return None
    payment.close()
    if payment.resumed:
        say("Used the charge again that was made for this stream, of which nothing was written then.")
    return payment.made


def _typed(flags: SketchFlags) -> SketchFlags:
    """Return the options with text as keys, where they state no type and every source is of a format that has no other.

    The format says so, not the records: a day without any begins the same stream.
    """
    from dpsketch.cli.recipes import sources_of
    from dpsketch.sources.locations import Database, locate

    if flags.key_type is not None or flags.kind not in _BY_TYPE:
        return flags
    located = locate(sources_of(flags), flags.stdin_format.value)
    text = all(not isinstance(each, Database) and each.format in ("csv", "tsv", "jsonl") for each in located)
    return replace(flags, key_type=KeyKind.TEXT) if text else flags


def _seeded(flags: SketchFlags, seed: int) -> SketchFlags:
    """Return the options with a seed of the hash functions, where they state none and the kind has one."""
    hashes = any(option.name == "seed" for option in KINDS[flags.kind].options)
    return replace(flags, shape={"seed": seed, **flags.shape}) if hashes else flags


def _begun(asked: Continual, flags: SketchFlags, budget: BudgetOptions, target: Target) -> Any:
    from dpsketch.cli.recipes import new_sketch, stated_type
    from dpsketch.sketches.continual.sketch import ContinualSketch

    account: dict[str, Any] = {"ledger": target.ledger, "dataset": target.dataset, "part": target.part}
    if flags.kind == "counts" and stated_type(flags) is None:
        raise InvalidInput("say --key-type text or int: a day without records must not differ from others by its type.")
    sketch = new_sketch(flags)
    terms: dict[str, Any] = {**asked.given, **budget.amount, **_listed(budget, flags, sketch)}
    return ContinualSketch(sketch, **terms, first_day=asked.day, **account)


def _listed(budget: BudgetOptions, flags: SketchFlags, sketch: Any) -> dict[str, Any]:
    """Return the public list of a histogram, and refuse other options of releases."""
    from dpsketch.cli.recipes import stated_type

    given = budget.arguments(KINDS[flags.kind], sketch.spec, stated_type(flags))
    if foreign := [f"--{name.replace('_', '-')}" for name in given if name != "keys"]:
        raise InvalidInput(f"{', '.join(foreign)} shapes a single release: leave it out of a stream.")
    return given


def _refuse_other(sketch: Any, asked: Continual, flags: SketchFlags, budget: BudgetOptions) -> None:
    """Refuse options that contradict the stream that was begun: its price and its shape are fixed."""
    from dpsketch.cli.recipes import stated_type

    unit = unit_from(flags.user, flags.max_keys, flags.max_weight, flags.neighbours)
    spec, promise = sketch.spec, sketch.guarantee
    wrong = [] if flags.kind == sketch.counts_kind else ["kind"]
    if not wrong:
        wrong = _differing(sketch, flags, budget)
    if unit != spec.unit:
        wrong.append("unit")
    if stated_type(flags) not in (None, getattr(spec, "key_type", None)):
        wrong.append("key-type")
    limits = {"days": sketch.days, "user_days": sketch.user_days, "days_apart": sketch.days_apart}
    wrong += [name.replace("_", "-") for name, held in limits.items() if asked.given.get(name, held) != held]
    if (asked.given.get("design") == "pan-private") is not sketch.design.keeps_noise:
        wrong.append("design")
    stated = {"epsilon": promise.epsilon, "delta": promise.delta, "rho": promise.rho}
    wrong += [name for name, value in budget.amount.items() if value is not None and value != stated[name]]
    if wrong:
        raise InvalidInput(
            f"the stream in {asked.state} was begun with another {', '.join(wrong)}. Give the same options every day, "
            "or begin another stream in another folder, at its own price."
        )


def _differing(sketch: Any, flags: SketchFlags, budget: BudgetOptions) -> list[str]:
    """Return which of the stated options shape another sketch than the stream's."""
    from dpsketch.cli.recipes import new_sketch

    spec = sketch.spec
    if flags.kind == "counts":
        return [name for name, value in flags.shape.items() if getattr(spec, name, value) != value]
    stated = new_sketch(_seeded(flags, getattr(spec, "seed", 0)))
    ours, theirs = spec.to_json(), stated.spec.to_json()
    # A stream counts values outside a domain as its ends, whatever it is given.
    free = ("unit", "key_type", "outside")
    wrong = [name for name in ours if name not in free and ours[name] != theirs.get(name)]
    listed = _listed(budget, flags, stated)
    if listed and not sketch.counts_keys(**listed):
        wrong.append("list of keys")
    return wrong


def _refuse_other_account(sketch: Any, asked: Continual, budget: BudgetOptions, target: Target) -> None:
    """Refuse to go on without the ledger that paid, or with one that did not."""
    charge = sketch.charge
    if charge is not None and target.ledger is None:
        raise InvalidInput(
            f"the stream in {asked.state} was charged to dataset {charge.dataset!r} of a ledger, which knows its days: "
            "go on with that, without --no-ledger. Else an old copy of the state would publish days again."
        )
    if budget.dataset is not None and (charge is None or charge.dataset != budget.dataset):
        raise InvalidInput(f"the stream in {asked.state} was begun with another dataset: it is charged once.")
    if charge is None and target.ledger is not None:
        raise InvalidInput(f"the stream in {asked.state} was begun without a ledger: say --no-ledger.")


def _refuse_other_series(path: Path, output: Path, sketch: Any) -> None:
    """Refuse to replace anything but the published days of this very stream."""
    from dpsketch.errors import DpsketchError
    from dpsketch.kinds import load

    if path.resolve() == output.resolve():
        raise InvalidInput("--series and --output are two files: name another one.")
    if not path.exists():
        return
    try:
        held: Any = load(path)
        same = held.kind == "series" and sketch.days_published and held.published.name == sketch.series().published.name
    except (DpsketchError, OSError):
        same = False
    if not same:
        raise InvalidInput(f"{path} is not the series of this stream, and is left as it is: name another file.")


def _write(private: Any, spool: Spool) -> None:
    from dpsketch import files

    data = files.encode(private.to_document())
    spool.fit(data, ())
    spool.write(data, sensitive=False)
    spool.finish()
