"""Commands that ask a release: query, top, inspect, plot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dpsketch.cli.forms import Forms
from dpsketch.cli.options import JsonOption, KeyKind, OutputOption, read_lines, with_groups
from dpsketch.cli.output import print_json, print_names, progress_bar, say
from dpsketch.errors import InvalidInput

if TYPE_CHECKING:
    from dpsketch.hashing import KeyType
    from dpsketch.release import Release
    from dpsketch.sources.values import Progress

__all__ = ["Confidence", "ReleaseFile", "inspect", "plot", "query", "top"]

_SHOWN = 20

ReleaseFile = Annotated[Path, typer.Argument(metavar="FILE", help="A released .dps file.")]
Confidence = Annotated[float, typer.Option("--confidence", help="Coverage of the intervals.")]
KeyTypeOption = Annotated[
    KeyKind | None,
    typer.Option("--key-type", help="Read keys as int or text, where the release does not say; text by default."),
]
DecodeOption = Annotated[
    bool, typer.Option("--decode", help="counts, heavy: estimate all keys given together, which is more accurate.")
]
EstimatorOption = Annotated[
    str | None, typer.Option("--estimator", help="counts: robust, median or mean; density: density or sum.")
]


DaysOption = Annotated[
    str | None, typer.Option("--days", help="Of published days: which of them, as in 8:14, counted from 1; all if not.")
]
CurveOption = Annotated[
    str | None,
    typer.Option("--curve", help="Of published days: over time, by running totals (total) or sums of days (7)."),
]


@with_groups(forms=Forms)
def query(
    forms: Forms,
    file: ReleaseFile,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY…", help="Keys to look up; of a density points (x,y); of ranges low:high or 50%."),
    ] = None,
    keys_from: Annotated[Path | None, typer.Option("--keys-from", help="A file with one key a line.")] = None,
    confidence: Confidence = 0.95,
    estimator: EstimatorOption = None,
    key_type: KeyTypeOption = None,
    decoded: DecodeOption = False,
    days: DaysOption = None,
    curve: CurveOption = None,
) -> None:
    """Ask a release: estimates with intervals, and the guarantee they come with.

    What begins with a minus is taken for an option, unless -- stands before it: dpsketch query FILE -- -20:0
    """
    from dpsketch.answers import answer, decode
    from dpsketch.kinds import load

    forms.check()
    release = _within(load(file), days)
    asked = list(keys or []) + (read_lines(keys_from) if keys_from is not None else [])
    stated = _stated(key_type, release)
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


@with_groups(forms=Forms)
def top(
    forms: Forms,
    file: ReleaseFile,
    n: Annotated[
        int | None, typer.Option("-n", "--number", help="How many keys. Default: 20, or all that pass --threshold.")
    ] = None,
    candidates: Annotated[
        Path | None, typer.Option("--candidates", help="A file with one candidate key a line.")
    ] = None,
    threshold: Annotated[float | None, typer.Option("--threshold", help="Only keys estimated at this or more.")] = None,
    confidence: Confidence = 0.95,
    key_type: KeyTypeOption = None,
    decoded: DecodeOption = False,
    days: DaysOption = None,
) -> None:
    """List the most frequent keys, with intervals that hold for all of them at once.

    Of a release that has names and no counts, all names are listed, in their own order.
    """
    from dpsketch import answers
    from dpsketch.kinds import load

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


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .dps or .sketch file.")],
    as_json: JsonOption = False,
) -> None:
    """Say what a file is and what it promises. Of a sensitive file only its spec is shown."""
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


def plot(
    file: ReleaseFile,
    output: OutputOption,
    candidates: Annotated[
        Path | None, typer.Option("--candidates", help="A file with one key a line: draw the largest of them.")
    ] = None,
    n: Annotated[int, typer.Option("-n", "--number", help="How many keys to draw.")] = 20,
    key_type: KeyTypeOption = None,
    key: Annotated[str | None, typer.Option("--key", help="With --curve: what to follow over time.")] = None,
    curve: CurveOption = None,
) -> None:
    """Draw a release as a picture (PNG, SVG or PDF by the file's ending)."""
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


def _stated(key_type: KeyKind | None, release: Release) -> KeyType | None:
    """Read --key-type, and say so where keys are taken for text because nobody said what they are."""
    if key_type is not None:
        return key_type.value
    if release.takes_either_key:
        say("Note: this release does not say what its keys are. They are read as text; --key-type int reads integers.")
    return None
