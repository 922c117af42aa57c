"""The page people read, its three figures and the README's sentences: all made from one file of results."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from benchmarks.drawing import draw_growth, draw_ratios, draw_shares
from benchmarks.machine import words

__all__ = ["BOUNDS", "INSTEAD", "line", "write"]

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "explanation" / "benchmarks.md"
README = ROOT / "README.md"
FIGURES = ROOT / "docs" / "figures"
BEGIN = "<!-- results: made by `make bench`, not by hand -->"
END = "<!-- end of results -->"

# A benchmark that takes so many seconds is named.
_LONG = 20

Rows = dict[tuple[str, str], dict[str, Any]]

# What a user would pick instead: a benchmark, its row, and the bar's label. Rates against rates, and at most twenty.
INSTEAD = {
    ("countsketch_update", "integers, against DataSketches"): "counts of integers: DataSketches Count-Min",
    ("countsketch_update", "Arrow strings, against DataSketches"): "counts of texts: DataSketches Count-Min",
    ("instead", "counts of integers against polars group_by (exact)"): "counts of integers: polars group_by, exact",
    ("instead", "counts of texts against polars group_by (exact)"): "counts of texts: polars group_by, exact",
    ("grouping", "uniform, texts of 33 bytes, 2 threads: polars"): "histogram of texts: polars group_by, exact",
    ("spark", "strings, frame against count_min_sketch"): "counts on Spark, a DataFrame: count_min_sketch",
    ("spark", "strings, files against count_min_sketch"): "counts on Spark, files: count_min_sketch",
    ("spark", "strings, frame against groupBy"): "counts on Spark, a DataFrame: groupBy, exact",
    ("heavy", "64-bit integers: adding"): "frequent integers: DataSketches frequent items",
    ("heavy", "texts of 4 to 24 bytes: adding"): "frequent texts: DataSketches frequent items",
    ("instead", "frequent integers against DuckDB approx_top_k"): "frequent integers: DuckDB approx_top_k",
    ("instead", "frequent texts against DuckDB approx_top_k"): "frequent texts: DuckDB approx_top_k",
    ("instead", "distinct integers against DuckDB approx_count_distinct"): "distinct: DuckDB approx_count_distinct",
    ("instead", "median against DuckDB approx_quantile"): "a median: DuckDB approx_quantile",
    ("density", "update, 10 dimensions, 100 rows; DataSketches"): "a density of points: DataSketches",
    ("noise", "rounded Gaussian noise, σ = 9.45"): "exact Gaussian noise: OpenDP",
    ("noise", "discrete Laplace noise, scale = 7"): "exact Laplace noise: OpenDP",
    ("sparse", "build"): "an ALP table built: OpenDP",
    ("sparse", "query"): "an ALP table read: OpenDP",
    ("local", "optimal local hashing: aggregated, 1024 keys estimated"): "local reports counted: pure-ldp",
}

# The machine's own limit for the same work.
BOUNDS = {
    ("loop_bound", "5×65,536 against increments anywhere"): "counting, 5×65,536: increments at random places",
    ("loop_bound", "5×65,536 against increments row by row"): "counting, 5×65,536: increments row by row",
    ("loop_bound", "5×65,536 against increments row by row and hashing, one after the other"): (
        "counting, 5×65,536: increments row by row, and hashing"
    ),
    ("loop_bound", "5×1,048,576 against increments row by row"): "counting, 5×1,048,576: increments row by row",
    ("loop_bound", "5×4,194,304 against increments row by row"): "counting, 5×4,194,304: increments row by row",
    ("loop_bound", "integers: two cores against one"): "counting integers on two cores: twice one core",
    ("loop_bound", "Arrow strings: two cores against one"): "counting texts on two cores: twice one core",
    ("end_to_end", "integers from Parquet against memory"): "integers from Parquet: from memory",
    ("end_to_end", "strings from Parquet against memory"): "texts from Parquet: from memory",
    ("end_to_end", "distinct strings from Parquet against Arrow alone"): "distinct texts from Parquet: Arrow's reading",
    ("spark", "strings, frame against handing over"): "counting a DataFrame on Spark: handing it over",
    ("service", "single reports against validating alone, SQLite"): "reports stored, SQLite: validating alone",
    ("service", "single reports against validating alone, PostgreSQL"): "reports stored, PostgreSQL: validating alone",
}


# What is said above the rows of a benchmark: why a goal that is missed cannot be met, or what a reader can do about it.
NOTES = {
    "spark": (
        "Of a DataFrame whatever counts in Python first gets its rows from Spark, which count_min_sketch need not. The "
        "rows of *handing over* say what that alone takes: Spark reads and hashes the texts, and sends the hashes."
    ),
    "loop_bound": (
        "A table that is larger than the processor's cache is counted as fast as memory takes single increments: the "
        "row *5×4,194,304 against increments row by row* is that bound, and hashing costs what is missing of it."
    ),
}


def write(results: dict[str, Any], page: Path = PAGE, readme: Path = README, figures: Path = FIGURES) -> None:
    """Write figures, page and README from results."""
    rows = {(row["benchmark"], row["name"]): row for row in results["rows"]}
    instead = [(label, rows[at]["ratio"]) for at, label in INSTEAD.items() if at in rows]
    draw_ratios(instead, figures / "benchmarks-instead.png", "as many times as fast (right of 1, dpsketch is faster)")
    draw_shares(shares(rows), figures / "benchmarks-bounds.png", "share of the limit")
    if series := [row["series"] for row in results["rows"] if "series" in row]:
        apart = results.get("apart", {}).get("growth")
        draw_growth(series, figures / "benchmarks-growth.png", "" if apart is None else f"Measured apart: {apart}")
    replace(page, table(results))
    try:
        claims = sentences(rows, results["machine"])
    except KeyError as missing:  # an interrupted run, or a benchmark that failed
        print(f"README.md stays as it was: {missing} is not among the results.")
    else:
        replace(readme, claims)


def shares(rows: Rows) -> list[tuple[str, float, float | None]]:
    """Return label, share of the limit and goal of what was measured; of two cores the limit is twice one."""
    found = []
    for at, label in BOUNDS.items():
        if at in rows:
            limit = 2.0 if "two cores against one" in at[1] else 1.0
            goal = rows[at].get("reach")
            found.append((label, rows[at]["ratio"] / limit, None if goal is None else goal / limit))
    return found


def replace(path: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Put text into a file's generated block."""
    before, rest = path.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def table(results: dict[str, Any]) -> str:
    """Return the machine and all rows, one table a benchmark."""
    text = [f"\nMeasured on {words(results['machine'])}."]
    apart = results.get("apart", {})
    if apart:
        text[0] += f" Not of that run, and not to be compared with it: {', '.join(apart)}."
    if resumed := results.get("resumed"):
        text[0] += f" It was interrupted and gone on with on {'; '.join(resumed)}."
    if unfinished := results.get("unfinished"):
        text[0] += f" It did not come to its end: {', '.join(unfinished)} are missing."
    if (seconds := results.get("seconds", {})) and sum(seconds.values()) >= _LONG:
        text += ["", _wrapped(_times_taken(seconds))]
    for name in dict.fromkeys(row["benchmark"] for row in results["rows"]):
        text += ["", f"### {name}"] + (["", f"Measured apart: {apart[name]}."] if name in apart else [])
        text += ["", _wrapped(NOTES[name])] if name in NOTES else []
        text += ["", "| | ours | theirs | | ratio | goal |", "|---|---:|---:|---|---:|---:|"]
        text += [_cells(row) for row in results["rows"] if row["benchmark"] == name]
    return "\n".join(text) + "\n"


def _times_taken(seconds: dict[str, float]) -> str:
    """Return how long the benchmarks take, the longest ones by name."""
    longest = sorted(seconds, key=lambda name: -seconds[name])
    named = [f"{name} {seconds[name]:.0f} s" for name in longest if seconds[name] >= _LONG]
    rest = sum(each for each in seconds.values() if each < _LONG)
    parts = ", ".join([*named, f"all others {rest:.0f} s"])
    return f"To measure it took {sum(seconds.values()) / 60:.0f} minutes: {parts}."


def _cells(row: dict[str, Any]) -> str:
    theirs = "" if row["theirs"] is None else _short(row["theirs"])
    ratio = "" if row["ratio"] is None else f"{row['ratio']:,.2f}×"
    goal = f"{row['reach']:g}×" if "reach" in row else ""
    if "reach" in row and row["ratio"] < row["reach"]:
        ratio = f"**{ratio}**"
    name = row["name"].replace("|", "\\|")
    return f"| {name} | {_short(row['ours'])} | {theirs} | {row['unit']} | {ratio} | {goal} |"


def _short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.3g}"


def sentences(rows: Rows, here: dict[str, Any]) -> str:
    """Return the README's claims, each from its row."""

    def ratio(benchmark: str, name: str) -> str:
        return _times(rows[benchmark, name]["ratio"])

    def millions(benchmark: str, name: str) -> str:
        return f"{rows[benchmark, name]['ours'] / 1e6:,.0f} million"

    def reports(name: str) -> str:
        return _two_digits(rows["service", name]["ours"])

    counting = ("countsketch_update", "integers, against DataSketches")
    batches = [f"batches of 1000 as {form} against single reports, SQLite" for form in ("json", "compact")]
    claims = [
        f"{millions(*counting)} integer keys a second on one core at 5×65,536 counters, {ratio(*counting)} times "
        "DataSketches' Count-Min from Python and "
        f"{ratio('loop_bound', '5×65,536 against increments anywhere')} of what bare increments at random places reach "
        f"without any hashing; {ratio('loop_bound', 'integers: two cores against one')} times that on two cores",
        f"exact noise {ratio('noise', 'rounded Gaussian noise, σ = 9.45')} times as fast as OpenDP's exact samplers",
        f"ALP tables built {ratio('sparse', 'build')} times and read {ratio('sparse', 'query')} times as fast as "
        "OpenDP's",
        "local reports aggregated "
        f"{ratio('local', 'optimal local hashing: aggregated, 1024 keys estimated')} times as fast as pure-ldp's",
        f"texts added to a tree {ratio('heavy', 'texts of 4 to 24 bytes: adding')} times as fast as to DataSketches' "
        "frequent items, which are not private",
    ]
    service = (
        f"The service takes {reports('single reports against validating alone, SQLite')} single reports a second "
        f"durably, {reports(batches[0])} to {reports(batches[1])} in batches."
    )
    return _wrapped(f"On {words(here)}: {'; '.join(claims)}. {service}")


def _times(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 10 else _two_digits(ratio)


def _two_digits(number: float) -> str:
    """Return a number rounded down to two digits: a claim is never more than what was measured."""
    step = 10 ** max(0, len(str(int(number))) - 2)
    return f"{int(number) // step * step:,}"


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 118, break_long_words=False, break_on_hyphens=False))


def line(row: dict[str, Any]) -> str:
    """Return one row for the terminal."""
    reach = f"(goal {row['reach']:g}×{'' if row['ratio'] >= row['reach'] else ', SHORT'})" if "reach" in row else ""
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}×"
    theirs = "" if row["theirs"] is None else f"{row['theirs']:.4g}"
    figures = f"{row['ours']:>12.4g} {theirs:>12} {row['unit']:16} {ratio:>10} {reach}"
    return f"{row['benchmark']:20} {row['name']:62} {figures}"
