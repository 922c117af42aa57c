"""A day of a stream from the command line: ``run KIND … --continual days=365 --state DIR --day 2026-11-15``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsketch.cli.budget import BudgetOptions, Target, source_of
from dpsketch.cli.delivery import save
from dpsketch.cli.notices import report, tell
from dpsketch.cli.options import flag_of, unit_from
from dpsketch.cli.output import progress_bar, say
from dpsketch.cli.recipes import SketchOptions, feed, key_parts, new_sketch, sources_of
from dpsketch.cli.spool import Spool
from dpsketch.errors import InvalidInput
from dpsketch.sketches.kinds import KINDS

if TYPE_CHECKING:
    from dpsketch.cli.run import RunOptions
    from dpsketch.ledger import Charge
    from dpsketch.sketches.continual.folder import StreamFolder

__all__ = ["run_day"]

_BY_TYPE = ("counts", "histogram")  # their days must not differ by the type of keys
# A longer gap is rather a mistake in a date.
_LONGEST_GAP = 31
_NAMES = {"days": int, "objective": str, "user_days": int, "days_apart": int, "design": str}


def _terms(text: str) -> dict[str, Any]:
    """Read the terms of a stream, as in days=365,objective=totals."""
    terms: dict[str, Any] = {}
    for item in text.split(","):
        name, _, value = item.partition("=")
        name, value = name.strip().replace("-", "_"), value.strip()
        if name not in _NAMES or name in terms or not value:
            raise InvalidInput(
                "--continual takes days=365, and objective=totals, user-days=12, days-apart=30, design=pan-private "
                "after commas."
            )
        if _NAMES[name] is int and not value.isdecimal() and (name, value) != ("days", "endless"):
            raise InvalidInput(f"--continual {name.replace('_', '-')}= is a whole number.")
        terms[name] = None if (name, value) == ("days", "endless") else _NAMES[name](value)
    if "days" not in terms:
        raise InvalidInput("--continual needs days=, the number of days that will be published, or days=endless.")
    return terms


def run_day(asked: RunOptions, flags: SketchOptions, budget: BudgetOptions, output: Path) -> None:
    """Publish a day: begin the stream where there is none, read the day's records, and write the total so far.

    Days between the last one and this are published as days without records, so that dates and numbers agree. A day
    that was published before is answered from the state: its records are not read again, and nothing is drawn.
    """
    from dpsketch import files
    from dpsketch.sketches.continual.folder import StreamFolder

    state, day, series = asked.state, asked.day, asked.series
    if asked.continual is None or state is None or day is None:
        raise InvalidInput("--continual, --state and --day go together: days=365, a folder, and a date.")
    terms = _terms(asked.continual)
    if asked.like is not None or asked.part_by is not None or asked.parts is not None or asked.dry_run:
        raise InvalidInput("--continual goes without --like, --part-by, --parts and --dry-run.")
    if flags.engine != "here":
        raise InvalidInput("--continual counts here: leave --engine out.")
    if flags.key is not None and len(key_parts(flags.key)) > 1:
        raise InvalidInput(
            "--continual takes one column as --key. Join several in one, as in --key \"concat(a, ' ', b)\"."
        )
    if series is not None and series.resolve().parent == state.resolve():
        raise InvalidInput("--series is public and --state is not: write it to another folder, which may be served.")
    target = budget.target(lambda: source_of(sources_of(flags)))
    folder = StreamFolder(state, ledger=target.ledger)
    with folder.held(), Spool.reserve(output, overwrite=asked.overwrite) as spool:
        charge = None if folder.exists else _begin(folder, terms, day, _typed(flags), budget, target)
        sketch = folder.load()
        _refuse_other(sketch, state, terms, flags, budget)
        _refuse_other_account(sketch, state, budget, target)
        number = sketch.number_of(day)
        if number < 1:
            raise InvalidInput(f"{day} is before the first day of this stream, {sketch.first_day}.")
        if number > sketch.days_published + _LONGEST_GAP:
            raise InvalidInput(
                f"{day} is more than {_LONGEST_GAP} days after the last that was published. Days between are "
                "published without records and use up the stream: if that is meant, name a day in between first."
            )
        if series is not None:
            _refuse_other_series(series, output, sketch)
        if number <= sketch.days_published:
            say(f"{day} was published before: answered from {state}. Nothing was read or drawn.")
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
        save(spool, files.encode(private.to_document()), sensitive=False)
        if series is not None:
            # As a whole, in the place of the one of the day before: a service that reads the folder sees either.
            sketch.series().save(series)
    # It was charged when it began, to whichever dataset today's file would be charged.
    tell(private, replace(target, dataset=private.charge and private.charge.dataset), output, asked.as_json, charge)


def _begin(
    folder: StreamFolder, terms: dict[str, Any], day: str, flags: SketchOptions, budget: BudgetOptions, target: Target
) -> Charge | None:
    """Charge for all days, and write the first state; interrupted between, the same command uses the charge again."""
    from dpsketch.ledger import Payment, binding_of

    token, payment = folder.token(), None
    if target.ledger is not None:
        stated = {name: repr(value) for name, value in terms.items()}
        payment = Payment(target.ledger, binding_of(frozenset({token}), budget=budget.amount, stream=stated))
    seeded = _seeded(flags, int(token[:15], 16))
    folder.begin(_begun(terms, day, seeded, budget, replace(target, ledger=payment)))
    if payment is None:
        return None
    payment.close()
    if payment.resumed:
        say("Used the charge again that was made for this stream, of which nothing was written then.")
    return payment.made


def _typed(flags: SketchOptions) -> SketchOptions:
    """Return the options with text as keys, where they state no type and every source is of a format that has no other.

    The format says so, not the records: a day without any begins the same stream.
    """
    from dpsketch.sources.locations import TEXT_FORMATS, Database, locate

    if flags.key_type is not None or flags.kind not in _BY_TYPE:
        return flags
    located = locate(sources_of(flags), flags.stdin_format)
    text = all(not isinstance(each, Database) and each.format in TEXT_FORMATS for each in located)
    return replace(flags, key_type="text") if text else flags


def _seeded(flags: SketchOptions, seed: int) -> SketchOptions:
    """Return the options with a seed of the hash functions, where they state none and the kind has one."""
    hashes = any(option.name == "seed" for option in KINDS[flags.kind].options)
    return replace(flags, shape={"seed": seed, **flags.shape}) if hashes else flags


def _begun(terms: dict[str, Any], day: str, flags: SketchOptions, budget: BudgetOptions, target: Target) -> Any:
    from dpsketch.sketches.continual.sketch import ContinualSketch

    account: dict[str, Any] = {"ledger": target.ledger, "dataset": target.dataset, "part": target.part}
    if flags.kind == "counts" and flags.key_type is None:
        raise InvalidInput("say --key-type text or int: a day without records must not differ from others by its type.")
    sketch = new_sketch(flags)
    price: dict[str, Any] = {**budget.amount, **_listed(budget, flags, sketch)}
    return ContinualSketch(sketch, **terms, **price, first_day=day, **account)


def _listed(budget: BudgetOptions, flags: SketchOptions, sketch: Any) -> dict[str, Any]:
    """Return the public list of a histogram, and refuse other options of releases."""
    given = budget.arguments(KINDS[flags.kind], sketch.spec, flags.key_type)
    if foreign := [flag_of(name) for name in given if name != "keys"]:
        raise InvalidInput(f"{', '.join(foreign)} shapes a single release: leave it out of a stream.")
    return given


def _refuse_other(sketch: Any, state: Path, terms: dict[str, Any], flags: SketchOptions, budget: BudgetOptions) -> None:
    """Refuse options that contradict the stream that was begun: its price and its shape are fixed."""
    unit = unit_from(flags.user, flags.max_keys, flags.max_weight, flags.neighbours)
    spec, promise = sketch.spec, sketch.guarantee
    wrong = [] if flags.kind == sketch.counts_kind else ["kind"]
    if not wrong:
        wrong = _differing(sketch, flags, budget)
    if unit != spec.unit:
        wrong.append("unit")
    if flags.key_type not in (None, getattr(spec, "key_type", None)):
        wrong.append("key-type")
    limits = {"days": sketch.days, "user_days": sketch.user_days, "days_apart": sketch.days_apart}
    wrong += [name.replace("_", "-") for name, held in limits.items() if terms.get(name, held) != held]
    if (terms.get("design") == "pan-private") is not sketch.design.keeps_noise:
        wrong.append("design")
    stated = {"epsilon": promise.epsilon, "delta": promise.delta, "rho": promise.rho}
    wrong += [name for name, value in budget.amount.items() if value is not None and value != stated[name]]
    if wrong:
        raise InvalidInput(
            f"the stream in {state} was begun with another {', '.join(wrong)}. Give the same options every day, "
            "or begin another stream in another folder, at its own price."
        )


def _differing(sketch: Any, flags: SketchOptions, budget: BudgetOptions) -> list[str]:
    """Return which of the stated options shape another sketch than the stream's."""
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


def _refuse_other_account(sketch: Any, state: Path, budget: BudgetOptions, target: Target) -> None:
    """Refuse to go on without the ledger that paid, or with one that did not."""
    charge = sketch.charge
    if charge is not None and target.ledger is None:
        raise InvalidInput(
            f"the stream in {state} was charged to dataset {charge.dataset!r} of a ledger, which knows its days: "
            "go on with that, without --no-ledger. Else an old copy of the state would publish days again."
        )
    if budget.dataset is not None and (charge is None or charge.dataset != budget.dataset):
        raise InvalidInput(f"the stream in {state} was begun with another dataset: it is charged once.")
    if charge is None and target.ledger is not None:
        raise InvalidInput(f"the stream in {state} was begun without a ledger: say --no-ledger.")


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
