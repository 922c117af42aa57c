"""Options that several commands share, and what they mean together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from dpsketch.errors import InvalidInput, SourceError
from dpsketch.sketches.kinds import KINDS, Kind, Option

if TYPE_CHECKING:
    from dpsketch.cli.datasets import Source
    from dpsketch.hashing import KeyType
    from dpsketch.ledger import Ledger
    from dpsketch.privacy import Unit

__all__ = [
    "BudgetOptions", "Engine", "JsonOption", "KeyKind", "LedgerOption", "OutputOption", "OverwriteOption",
    "PlannedOutput", "RelationName", "SketchFlags", "StdinFormat", "Target", "kind_argument", "open_ledger",
    "read_lines", "refuse_foreign", "unit_from", "whole", "with_groups", "written_to",
]  # fmt: skip


def kind_argument(able: Callable[[Kind], bool], words: str) -> Any:
    """Return an argument that names a kind: one of those that are ``able``, read off the table when it is given."""

    def names() -> list[str]:
        return [kind.name for kind in KINDS.values() if able(kind)]

    def named(text: str) -> str:
        if text not in names():
            raise typer.BadParameter(f"{text!r} is not one of {', '.join(map(repr, names()))}.")
        return text

    return typer.Argument(parser=named, autocompletion=names, help=f"{words}: {', '.join(names())}.")


def written_to(output: Path | None, *, dry_run: bool) -> Path:
    """Return where a release goes; only where nothing is written may that be left open."""
    if output is None and not dry_run:
        raise typer.BadParameter("say where to write: -o FILE (--dry-run does without).")
    return output or Path("out.dps")


def whole(text: str | int) -> int:
    """Read a whole number, which may be written as 1e5."""
    with suppress(ValueError):
        return int(text)
    with suppress(ValueError):
        value = float(text)
        if value.is_integer():
            return int(value)
    raise typer.BadParameter(f"{text!r} is not a whole number.")


# From this ε on, e^ε is past 20,000.
_CARELESS = 10.0


class KeyKind(StrEnum):
    """How keys of a text file are read."""

    TEXT = "text"
    INT = "int"


class RelationName(StrEnum):
    """The neighbour relations."""

    ADD_REMOVE = "add_remove"
    REPLACE = "replace"


class Engine(StrEnum):
    """What reads and counts the records."""

    HERE = "here"
    SPARK = "spark"


class StdinFormat(StrEnum):
    """What standard input holds."""

    CSV = "csv"
    TSV = "tsv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    ARROW = "arrow"


OutputOption = Annotated[Path, typer.Option("--output", "-o", help="The file to write.")]
PlannedOutput = Annotated[
    Path | None, typer.Option("--output", "-o", help="The file to write; --dry-run does without.")
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        envvar="DPSKETCH_LEDGER",
        help="Budget ledger: a file or a database URL. Default: one file in your data folder.",
    ),
]


def shape_options() -> dict[str, Any]:
    """Return the annotations of all options that shape a sketch of some kind, by name."""
    return _annotated(option for kind in KINDS.values() for option in kind.options)


def release_options() -> dict[str, Any]:
    """Return the annotations of all options that shape a release of some kind, by name."""
    return _annotated(option for kind in KINDS.values() for option in kind.release_options)


def _annotated(options: Iterable[Option]) -> dict[str, Any]:
    return {
        option.name: Annotated[
            option.type | None, typer.Option("--" + option.name.replace("_", "-"), help=option.words)
        ]
        for option in options
    }


def refuse_foreign(kind: Kind, given: Iterable[str], taken: Iterable[Option]) -> None:
    """Refuse options that a kind does not take."""
    foreign = sorted("--" + name.replace("_", "-") for name in set(given) - {option.name for option in taken})
    if foreign:
        raise typer.BadParameter(f"{', '.join(foreign)} does not apply to {kind.name}.")


@dataclass(frozen=True, slots=True)
class SketchFlags:
    """What to read and what to make of it."""

    kind: Annotated[
        str,
        kind_argument(lambda kind: kind.has_command, "Which sketch (see dpsketch --help)"),
    ]
    source: Annotated[
        list[str] | None,
        typer.Argument(metavar="SOURCE…", help="Files, globs, a database table (…?table=NAME), or - ."),
    ] = None
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            help="The column that holds the key; a,b for several as one; SQL with parentheses is computed. A name with "
            "a comma or parenthesis is in double quotes.",
        ),
    ] = None
    where: Annotated[
        str | None, typer.Option("--where", help='Read rows of which this SQL is true, as in "distance > 500".')
    ] = None
    sql: Annotated[
        str | None, typer.Option("--sql", help="Instead of SOURCE: SELECT columns FROM 'files' WHERE condition.")
    ] = None
    user: Annotated[str | None, typer.Option("--user", help="The column that says whose record it is.")] = None
    max_keys: Annotated[
        str | None,
        typer.Option(
            "--max-keys",
            metavar="N|auto",
            help="So many distinct keys of a user count. auto: a histogram's release chooses, with 5% of ε.",
        ),
    ] = None
    weight: Annotated[str | None, typer.Option("--weight", help="The column that holds a record's weight.")] = None
    count: Annotated[
        str | None, typer.Option("--count", help="The column that says how many equal records a row stands for.")
    ] = None
    max_weight: Annotated[float, typer.Option("--max-weight", help="Weights above this are clipped to it.")] = 1
    key_type: Annotated[
        KeyKind | None, typer.Option("--key-type", help="CSV and JSON-lines keys are text unless int.")
    ] = None
    neighbours: Annotated[RelationName, typer.Option("--neighbours", help="What one unit's presence means.")] = (
        RelationName.ADD_REMOVE
    )
    stdin_format: Annotated[StdinFormat, typer.Option("--format", help="What standard input (-) holds.")] = (
        StdinFormat.CSV
    )
    engine: Annotated[Engine, typer.Option("--engine", help="Count here, or on a Spark cluster; files only.")] = (
        Engine.HERE
    )
    master: Annotated[
        str | None, typer.Option("--master", help="The cluster: local[*], spark://host:7077, yarn, sc://host.")
    ] = None
    columns: Annotated[str | None, typer.Option("--columns", help="density: the coordinates, as in x,y.")] = None
    # Those options of the kinds' rows that were stated, by name.
    shape: dict[str, Any] = field(default_factory=dict, metadata={"options": shape_options})


@dataclass(frozen=True, slots=True)
class BudgetOptions:
    """What a release may cost, and who pays."""

    epsilon: Annotated[float | None, typer.Option("--epsilon", "-e", help="Privacy: ε of the release.")] = None
    delta: Annotated[float | None, typer.Option("--delta", "-d", help="Privacy: δ of the release; 0 is pure.")] = None
    rho: Annotated[float | None, typer.Option("--rho", help="Privacy: ρ (zero-concentrated) instead.")] = None
    ledger: LedgerOption = None
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="Whose budget pays. Default: the file name of an only source.")
    ] = None
    no_ledger: Annotated[
        bool, typer.Option("--no-ledger", help="Charge no budget: this release is tracked nowhere.")
    ] = False
    part: Annotated[
        str | None,
        typer.Option(
            "--part", help="The part of the dataset that is released, as in 2026-11-15 (ledger create --parts)."
        ),
    ] = None
    records: Annotated[
        int | None, typer.Option("--records", parser=whole, help="About how many records there are, as you state it.")
    ] = None
    keys: Annotated[
        int | None,
        typer.Option("--keys", parser=whole, help="With --dry-run: about how many distinct keys, as you state it."),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", help="Release even if the budget protects hardly anyone.")] = False

    # Those options of the kinds' rows that shape a release and were stated, by name.
    release: dict[str, Any] = field(default_factory=dict, metadata={"options": release_options})

    def arguments(self, kind: Kind, spec: Any, key_type: KeyType | None = None) -> dict[str, Any]:
        """Return what ``release`` of a kind takes beside the budget itself."""
        refuse_foreign(kind, self.release, kind.release_options)
        if not self.release:
            return {}
        given = {name: read_lines(value) if isinstance(value, Path) else value for name, value in self.release.items()}
        return kind.release_arguments(spec, given, key_type)

    @property
    def amount(self) -> dict[str, float | None]:
        """The budget itself, as ``release`` takes it."""
        return {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho}

    def refuse_careless(self) -> None:
        """Refuse a budget that protects hardly anyone, unless --yes says that it is meant."""
        if self.yes:
            return
        from dpsketch.privacy import CARELESS_DELTA

        epsilon = self.epsilon or 0.0
        if self.rho is not None:
            from dpsketch import accounting
            from dpsketch.core.drawn import DELTA_FOR_RHO

            epsilon = accounting.gaussian_epsilon(accounting.zcdp_mu(self.rho), DELTA_FOR_RHO)
        if epsilon >= _CARELESS:
            raise InvalidInput(
                f"ε = {epsilon:.3g} protects hardly anyone: whoever is almost sure that someone is not in the data "
                "may be almost sure of the opposite afterwards. Choose one below 10 (1 is usual), or say --yes."
            )
        if self.delta is not None and self.delta >= CARELESS_DELTA:
            raise InvalidInput(
                f"δ = {self.delta:g} protects hardly anyone: a release that shows each unit whole with this "
                "probability would keep the promise. Choose one far below one over the number of units (1e-6 is "
                "usual), or say --yes."
            )
        if self.records is not None and self.delta is not None and self.delta * self.records >= 1:
            raise InvalidInput(
                f"δ = {self.delta:g} is no less than 1 over the {self.records:,} records that --records states, and "
                f"allows a release that shows some record whole. Choose one well below {1 / self.records:.1g}, or say "
                "--yes."
            )

    def target(self, source: Callable[[], Source]) -> Target:
        """Choose the ledger: the one named, else the user's own, unless the caller opted out by name.

        ``source`` tells where the records come from: the ledger may know whose they are.
        """
        if self.no_ledger:
            if self.dataset is not None or self.part is not None:
                raise InvalidInput("--no-ledger contradicts --dataset and --part.")
            return Target(None, None)
        ledger = open_ledger(self.ledger)
        origin, known = source(), ledger.named_sources()
        dataset, note = origin.dataset(ledger, known, self.dataset)
        return Target(ledger, dataset, self.part, origin.identity, known.get(origin.identity or ""), note)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a release is charged; ``known`` is the dataset that the ledger knew its source by."""

    ledger: Ledger | None
    dataset: str | None
    part: str | None = None
    source: str | None = None
    known: str | None = None
    note: str | None = None

    def remember(self) -> None:
        """Have the ledger know the source from now on."""
        if self.ledger is None or self.dataset is None or self.source is None or self.known == self.dataset:
            return
        self.ledger.name_source(self.source, self.dataset)


def open_ledger(url: str | None) -> Ledger:
    """Return the ledger that --ledger names, else the default one."""
    from dpsketch.ledger import Ledger

    return Ledger.default() if url is None else Ledger(url)


def with_groups(**groups: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of whole groups (dataclasses), each arriving as one value under its name.

    A field whose metadata name ``options`` stands for all of those, and holds the ones that were stated.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command).parameters.values()
        hints = get_type_hints(command, include_extras=True)
        parameters = []
        several: dict[str, list[str]] = {}  # the options that a field of a group stands for
        for name, group in groups.items():
            types = get_type_hints(group, include_extras=True)
            for one in fields(group):
                if "options" in one.metadata:
                    options: dict[str, Any] = one.metadata["options"]()
                    parameters += [_keyword(option, annotation, None) for option, annotation in options.items()]
                    several[one.name] = list(options)
                    continue
                default = inspect.Parameter.empty if one.default is MISSING else one.default
                parameters.append(_keyword(one.name, types[one.name], default))
            hints.pop(name)
        parameters += [_keyword(one.name, hints[one.name], one.default) for one in own if one.name not in groups]

        def run(**values: Any) -> None:
            gathered = {name: _gathered(group, values, several) for name, group in groups.items()}
            command(**gathered, **values)

        run.__doc__ = command.__doc__
        run.__name__ = command.__name__
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        described: Any = run
        described.__signature__ = inspect.Signature(parameters)
        return run

    return decorate


def _gathered(group: type[Any], values: dict[str, Any], several: dict[str, list[str]]) -> Any:
    """Take the values of a group out of all values, and return the group."""
    taken: dict[str, Any] = {}
    for one in fields(group):
        if one.name not in several:
            taken[one.name] = values.pop(one.name)
            continue
        given = {name: values.pop(name) for name in several[one.name] if name in values}
        taken[one.name] = {name: value for name, value in given.items() if value is not None}
    return group(**taken)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def unit_from(user: str | None, max_keys: int | str | None, max_weight: float, relation: RelationName) -> Unit:
    """Read the privacy unit off the options: a user's column makes it a user, else it is a record."""
    from dpsketch.privacy import per_record, per_user

    if user is None:
        if max_keys is not None:
            raise InvalidInput("--max-keys bounds a user's keys: name the user's column with --user.")
        return per_record(max_weight=max_weight, neighbours=relation.value)
    if max_keys is None:
        raise InvalidInput("--user needs --max-keys: at most so many distinct keys of one user count.")
    if max_keys == "auto":
        return per_user("auto", max_weight=max_weight, neighbours=relation.value)
    if isinstance(max_keys, str) and not max_keys.isdecimal():
        raise InvalidInput("--max-keys is a whole number, or auto.")
    return per_user(int(max_keys), max_weight=max_weight, neighbours=relation.value)


def read_lines(path: Path) -> list[str]:
    """Read one key a line; the encoding is UTF-8."""
    problem = ""
    try:
        return [line for line in path.read_text(encoding="utf-8-sig").splitlines() if line]
    except UnicodeDecodeError:
        problem = f"{path} is not UTF-8 text with one key a line."
    except (FileNotFoundError, IsADirectoryError):
        problem = f"{path} is not a file."
    raise SourceError(problem)
