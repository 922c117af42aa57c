"""Commands that ask releases: query, top, inspect, plot; and about two of them: compare, add, subtract."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpsketch.cli.delivery import save
from dpsketch.cli.options import (
    FILE,
    argument,
    command,
    gather,
    given,
    json_option,
    one_of,
    option,
    options_of,
    output_option,
    overwrite_option,
    read_lines,
)
from dpsketch.cli.output import beside, print_estimates, print_json, print_names, progress_bar, say
from dpsketch.cli.spool import Spool
from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.privacy import Guarantee
    from dpsketch.release import Release
    from dpsketch.results import Estimates
    from dpsketch.sketches.table.rows import TableView
    from dpsketch.sources.values import Progress

__all__ = [
    "Forms", "add", "compare", "confidence_option", "inspect", "keys_from_option", "plot", "query",
    "relative_error_option", "subtract", "top",
]  # fmt: skip

_SHOWN = 20

confidence_option = option("--confidence", type=float, default=0.95, help="Coverage of the intervals.")
relative_error_option = option(
    "--max-relative-error", type=float,
    help="Largest half width of an interval as a part of its number, for numbers of a table; others are left blank.",
)  # fmt: skip
keys_from_option = option("--keys-from", type=FILE, help="File with one key per line.")
_release_file = argument("file", "FILE", "Released .dps file.", type=FILE)
_keys = argument("keys", "KEY…", "Keys to look up; of a density points (x,y); of ranges low:high or 50%.", nargs=-1)
_key_type = option(
    "--key-type", type=one_of(Literal["text", "int"]),
    help="Type of the keys, where the release does not say it; text by default.",
)  # fmt: skip
_decode = option(
    "--decode", "decoded", is_flag=True,
    help="Joint estimate of all given keys, which is more accurate (counts and heavy).",
)  # fmt: skip
_days = option("--days", help="Days of a series, as in 8:14, counted from 1; all by default.")
_curve = option("--curve", help="Curve over the days of a series: running totals (total), or sums of days (7).")


@dataclass(frozen=True, slots=True)
class Forms:
    """The form in which an answer is printed: a table, JSON, CSV, Markdown, or a Parquet file."""

    as_json: bool = given("JSON output, for programs.", "--json", group="Output", default=False)
    as_csv: bool = given(
        "CSV, one row per key; a compound key has its columns.", "--csv", group="Output", default=False
    )
    as_markdown: bool = given("Table in Markdown.", "--markdown", group="Output", default=False)
    parquet: Path | None = given("Parquet file to write the answer to.", group="Output")

    def check(self) -> None:
        """Refuse two forms of one answer."""
        if self.as_json + self.as_csv + self.as_markdown + (self.parquet is not None) > 1:
            raise InvalidInput("--json, --csv, --markdown and --parquet are forms of one answer: choose one.")
        if self.parquet is not None and (self.parquet.is_dir() or not self.parquet.absolute().parent.is_dir()):
            raise InvalidInput(f"--parquet {self.parquet}: it is a folder, or its folder does not exist.")

    def show(self, found: Estimates, guarantee: Guarantee, key_columns: Sequence[str]) -> None:
        """Print the answer on standard output, or write it; except in JSON, what goes with it on standard error."""
        text = None
        if self.as_csv:
            text = found.to_csv(key_columns=key_columns)
        elif self.as_markdown:
            text = found.to_markdown(key_columns=key_columns)
        elif self.parquet is not None:
            self._write(found, guarantee, key_columns)
            text = ""
        if text is None:
            print_estimates(found, guarantee, as_json=self.as_json)
            return
        sys.stdout.write(text)
        beside(found, guarantee)
        if self.parquet is not None:
            say(f"Wrote {self.parquet}.")

    def show_rows(
        self, view: TableView, guarantee: Guarantee, facts: dict[str, Any], *, limit: int | None = None, **options: Any
    ) -> None:
        """Print the rows of a table, or write them; ``facts`` go into JSON, ``options`` shape the numbers."""
        if self.as_json:
            print_json({"rows": view.to_json(**options), "guarantee": guarantee.to_json(), **facts})
        elif self.as_csv:
            sys.stdout.write(view.to_csv(**options) or "")
        elif self.as_markdown:
            sys.stdout.write(view.to_markdown(**options))
        elif self.parquet is not None:
            self._write_table(view.to_arrow(**options), guarantee)
            say(f"Wrote {self.parquet}.")
        else:
            print(view.to_text(limit, **options))

    def _write(self, found: Estimates, guarantee: Guarantee, key_columns: Sequence[str]) -> None:
        self._write_table(found.to_arrow(key_columns=key_columns), guarantee)

    def _write_table(self, table: Any, guarantee: Guarantee) -> None:
        import pyarrow.parquet

        said = {**(table.schema.metadata or {}), "guarantee": str(guarantee)}
        pyarrow.parquet.write_table(table.replace_schema_metadata(said), self.parquet)


@command(params=options_of(Forms))
@_release_file
@_keys
@keys_from_option
@confidence_option
@option("--estimator", help="Estimator: robust, median or mean for counts; density or sum for a density.")
@_key_type
@_decode
@_days
@_curve
@option("--rollup", help="Group columns of a table to keep, as in country,day; the other groups are added up.")
@relative_error_option
def query(
    file: Path, keys: tuple[str, ...], keys_from: Path | None, confidence: float, estimator: str | None,
    key_type: KeyType | None, decoded: bool, days: str | None, curve: str | None, rollup: str | None,
    max_relative_error: float | None, **values: Any,
) -> None:  # fmt: skip
    """Ask a release: estimates with intervals, and the guarantee.

    Of a table all rows are shown, or those of the groups that are named as keys.

    A key that begins with a minus is taken for an option, unless -- stands before it: dpsketch query FILE -- -20:0
    """
    from dpsketch.answers import answer, decode
    from dpsketch.kinds import load

    forms = gather(Forms, values)
    forms.check()
    release = _within(load(file), days)
    asked = list(keys) + (read_lines(keys_from) if keys_from is not None else [])
    stated = _stated(key_type, release)
    if hasattr(release, "rollup"):
        if decoded or estimator is not None or curve is not None:
            raise InvalidInput("a table's numbers have one estimate: drop --decode, --estimator and --curve.")
        shape = {"confidence": confidence, "max_relative_error": max_relative_error}
        _show_table(forms, release, asked, stated, rollup, shape)
        return
    if rollup is not None or max_relative_error is not None:
        raise InvalidInput("--rollup and --max-relative-error are for tables, which `dpsketch table` makes.")
    if curve is not None:
        if len(asked) != 1 or decoded or estimator is not None:
            raise InvalidInput("--curve follows one key, and takes neither --decode nor --estimator.")
        series = _series(release)
        found = series.curve(series.question(asked[0], stated), window=_window(curve), confidence=confidence)
        forms.show(found, release.guarantee, ())
        return
    release = _total(release)
    if decoded and estimator is not None:
        raise InvalidInput("--decode is an estimator of its own: drop --estimator.")
    if decoded:
        with progress_bar("decoding") as bar:
            found = decode(release, asked, confidence, stated, progress=_steps(bar, "sweeps"))
    else:
        found = answer(release, asked, confidence, estimator, stated)
    forms.show(found, release.guarantee, release.key_columns)


def _show_table(
    forms: Forms, release: Any, asked: list[str], key_type: KeyType | None, rollup: str | None, shape: dict[str, Any]
) -> None:
    """Print the rows of a table, of some of its groups, or of groups that are added up."""
    view = release.only(asked, key_type=key_type) if asked else release.rows
    if rollup is not None:
        if asked:
            raise InvalidInput("--rollup adds all groups up: drop the groups that are named as keys.")
        view = release.rollup(*(name.strip() for name in rollup.split(",") if name.strip()))
    meanings = {name: words for name, words in release.meanings.items() if name in view.columns}
    facts = {"confidence": shape["confidence"], "meanings": meanings, "others": release.others_at(shape["confidence"])}
    forms.show_rows(view, release.guarantee, facts, **shape)
    if not forms.as_json:
        for name, words in meanings.items():
            say(f"{name}: {words}.")
        if rollup is not None:
            say("Intervals reach up by what unlisted groups may hold; users are pairs of users and groups.")
        say(f"Guarantee: {release.guarantee}")


@command(params=options_of(Forms))
@_release_file
@option("-n", "--number", "n", type=int, help="Number of keys. By default 20, or all that pass --threshold.")
@option("--candidates", type=FILE, help="File with one candidate key per line.")
@option("--threshold", type=float, help="Smallest estimate to list.")
@confidence_option
@_key_type
@_decode
@_days
def top(
    file: Path, n: int | None, candidates: Path | None, threshold: float | None, confidence: float,
    key_type: KeyType | None, decoded: bool, days: str | None, **values: Any,
) -> None:  # fmt: skip
    """List the most frequent keys, with intervals that hold jointly.

    Of a release that has names and no counts, all names are listed, in their own order.
    """
    from dpsketch import answers
    from dpsketch.kinds import load

    forms = gather(Forms, values)
    forms.check()
    release = _total(_within(load(file), days))
    if (names := release.bare_names) is not None:
        if threshold is not None or decoded:
            raise InvalidInput("this release has names and no counts: drop --threshold and --decode.")
        print_names(names, release.guarantee, as_json=forms.as_json)
        return
    listed = None if candidates is None else read_lines(candidates)
    most = _SHOWN if n is None and threshold is None else n
    stated = _stated(key_type, release)
    unit: Literal["sweeps", "levels"] = "sweeps" if decoded else "levels"
    long = decoded or (listed is None and release.searches)
    with progress_bar("decoding" if decoded else "searching") if long else nullcontext() as bar:
        found = answers.top(
            release, most, listed, confidence, stated, threshold=threshold, decoded=decoded, progress=_steps(bar, unit)
        )
    forms.show(found, release.guarantee, release.key_columns)


def _steps(
    bar: Callable[[Progress], None] | None, unit: Literal["sweeps", "levels"]
) -> Callable[[int, int], None] | None:
    """Return what moves a bar with the sweeps of joint decoding or the levels of a search; None where none is drawn."""
    if bar is None:
        return None
    from dpsketch.sources.values import Progress

    return lambda done, most: bar(Progress(done, most, unit))


@command()
@argument("file", "FILE", "Release or sketch (.dps, .sketch).", type=FILE)
@json_option
def inspect(file: Path, as_json: bool) -> None:
    """Describe a file and what it promises. Of a sensitive file only its spec is shown."""
    from dpsketch import files
    from dpsketch.answers import describe
    from dpsketch.kinds import KINDS, load

    document = files.read(file, allow_sensitive=True)
    facts: dict[str, Any] = {"file": str(file)}
    if document.sensitive:
        facts |= {"kind": document.kind, "sensitive": True}
        if document.kind in KINDS:
            facts["answers"] = KINDS[document.kind].question
        facts["spec"] = document.header.get("spec")
    else:
        facts |= describe(load(file), file.stat().st_size)
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        if name == "guarantee":
            print(f"guarantee: {value['words']}")
        elif isinstance(value, dict):
            print(f"{name}:")
            for inner, part in value.items():
                print(f"  {inner}: {part}")
        else:
            print(f"{name}: {value}")
    if document.sensitive:
        say("This file is sensitive: it may not be published. `dpsketch release` makes what may.")


@command()
@_release_file
@output_option
@option("--candidates", type=FILE, help="File with one key per line; the largest of them are drawn.")
@option("-n", "--number", "n", type=int, default=20, help="Number of keys to draw.")
@_key_type
@option("--key", help="Key to follow over time, with --curve.")
@_curve
def plot(
    file: Path, output: Path, candidates: Path | None, n: int, key_type: KeyType | None, key: str | None,
    curve: str | None,
) -> None:  # fmt: skip
    """Draw a release as a picture. The ending of the file says whether it is PNG, SVG or PDF."""
    from dpsketch import plots
    from dpsketch.kinds import load
    from dpsketch.release import typed_keys

    release = load(file)
    if (key is None) is not (curve is None):
        raise InvalidInput("--key and --curve go together: what to follow over time, and sums of how many days.")
    if key is not None and curve is not None:
        series = _series(release)
        plots.save(series.plot(series.question(key, _stated(key_type, release)), window=_window(curve)), output)
        say(f"Wrote {output}.")
        return
    listed = None
    if candidates is not None:
        listed = typed_keys(read_lines(candidates), release.key_type, _stated(key_type, release), release.key_columns)
    plots.save(release.picture(listed, n), output)
    say(f"Wrote {output}.")


def _series(release: Release) -> Any:
    """Return a release of published days, or refuse another."""
    if not hasattr(release, "between"):
        raise InvalidInput("--days and --curve ask the published days of a stream: a file that run --series wrote.")
    return release


def _within(release: Release, days: str | None) -> Release:
    """Return the release of the days that --days names, or the release itself."""
    if days is None:
        return release
    first, _, last = days.partition(":")
    if not first.isdecimal() or not (last or first).isdecimal():
        raise InvalidInput("--days takes the first and the last, counted from 1, as in 8:14; or one of them.")
    found: Release = _series(release).between(int(first), int(last or first))
    return found


def _total(release: Release) -> Release:
    """Return the total of published days; any other release is one."""
    return _within(release, f"1:{release.days_published}") if hasattr(release, "days_published") else release


def _window(curve: str) -> int | None:
    if curve == "total":
        return None
    if not curve.isdecimal():
        raise InvalidInput("--curve takes a number of days, or total.")
    return int(curve)


def _stated(key_type: KeyType | None, release: Release) -> KeyType | None:
    """Read --key-type, and say so where keys are taken for text because nobody said what they are."""
    if key_type is None and release.takes_either_key:
        say("Note: this release does not say what its keys are. They are read as text; --key-type int reads integers.")
    return key_type


_first = argument("first", "A", "Released .dps file.", type=FILE)
_second = argument("second", "B", "Another released .dps file.", type=FILE)


@command(params=options_of(Forms))
@_first
@_second
@argument("keys", "KEY…", "Keys to compare; by default all that two histograms name.", nargs=-1)
@keys_from_option
@confidence_option
@_key_type
def compare(
    first: Path, second: Path, keys: tuple[str, ...], keys_from: Path | None, confidence: float,
    key_type: KeyType | None, **values: Any,
) -> None:  # fmt: skip
    """Show what changed from A to B, with intervals for the differences.

    Both are asked the same. The largest changes come first where no keys were named. The interval covers the error of
    the two releases only: this is no significance test.
    """
    from dpsketch.answers import compare as compared
    from dpsketch.kinds import load

    forms = gather(Forms, values)
    forms.check()
    one, other = load(first), load(second)
    asked = [*keys, *(read_lines(keys_from) if keys_from is not None else ())]
    found, guarantee = compared(one, other, asked, confidence, key_type)
    forms.show(found, guarantee, one.key_columns)


@command()
@_first
@_second
@output_option
@overwrite_option
def add(first: Path, second: Path, output: Path, overwrite: bool) -> None:
    """Add two releases over different records. Nothing is read or charged."""
    _combine(first, second, output, overwrite, 1)


@command()
@_first
@_second
@output_option
@overwrite_option
def subtract(first: Path, second: Path, output: Path, overwrite: bool) -> None:
    """Subtract release B from release A. Nothing is read or charged."""
    _combine(first, second, output, overwrite, -1)


def _combine(first: Path, second: Path, output: Path, overwrite: bool, sign: int) -> None:
    from dpsketch import files
    from dpsketch.kinds import load

    one: Any = load(first)
    other: Any = load(second)
    if not (hasattr(one, "__add__") and type(one) is type(other)):
        raise InvalidInput(
            "only two releases of counts add up to one, as they are linear. `dpsketch compare A B` tells how two "
            "others differ; their records together need a sketch of both (dpsketch merge)."
        )
    together = one + other if sign > 0 else one - other
    with Spool.reserve(output, overwrite=overwrite) as spool:
        save(spool, files.encode(together.to_document()), sensitive=False)
    say(f"Wrote {output}. Guarantee: {together.guarantee}")
