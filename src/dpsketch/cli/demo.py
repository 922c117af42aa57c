"""The main job, end to end, on data that the demo makes itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpsketch.cli.options import FILE, command, option
from dpsketch.cli.output import table
from dpsketch.numbers import number_text

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["demo"]

_EPSILON, _DELTA = 1.0, 1e-6
_PAGES = 40_000
_TOP_COUNT = 60_000


@command()
@option("--output", "-o", type=FILE, default="demo-output", help="Folder for the files of the demo.")
def demo(output: Path) -> None:
    """Count the pages of a made-up web site privately. Beside the answers stands the truth."""
    from dpsketch import plots
    from dpsketch.cli.recipes import SketchOptions, feed, new_sketch
    from dpsketch.kinds import load

    output.mkdir(parents=True, exist_ok=True)
    visits, release_file, picture = output / "visits.csv", output / "visits.dps", output / "visits.png"
    truth = dict(_pages())
    records = _write_visits(visits, truth)
    print(f"1. Made {visits}: {records:,} visits to {len(truth):,} pages, a few of them popular (Zipf).")

    flags = SketchOptions("counts", (str(visits),), key="page")
    sketch = new_sketch(flags)
    feed(sketch, flags, None)
    print(
        f"2. Sketched them into {sketch.spec.rows}×{sketch.spec.width} counters ({sketch.spec.memory // 1024} KiB), "
        "whatever the number of pages."
    )

    sketch.release(epsilon=_EPSILON, delta=_DELTA).save(release_file)
    print(f"3. Added noise and wrote {release_file}. Anyone may have that file.")

    private: Any = load(release_file)
    names = list(truth)
    asked = [*names[:5], *names[20:200:45], *names[1000:20000:6000], "/no-such-page"]
    estimates = private.estimate(asked)
    rows = []
    for key, value, low, high in estimates.rows():
        true = truth.get(key, 0)
        rows.append(
            [
                key,
                f"{true:,}",
                number_text(value),
                f"{number_text(low)} … {number_text(high)}",
                "yes" if low <= true <= high else "no",
            ]
        )
    table(
        ["page", "true visits", "private estimate", "95% interval", "covers"],
        rows,
        title="4. Answers from the release, beside the truth that only you can see",
    )

    best = private.top(20, candidates=names)
    found = len(set(best.key) & set(names[:20]))
    print(f"Of the true top 20, {found} are among the private top 20 of all {len(names):,} pages.")
    plots.save(private.plot(candidates=names, n=20), picture)
    print(f"5. Drew them: {picture}")
    print()
    print("What was promised:", private.guarantee)
    print()
    print("The same with your own table:")
    print("  dpsketch run histogram YOUR.csv --key COLUMN --epsilon 1 --delta 1e-6 -o counts.dps")
    print("  dpsketch top counts.dps")


def _pages() -> Iterator[tuple[str, int]]:
    sections = ("news", "shop", "help", "blog", "docs")
    for rank in range(1, _PAGES + 1):
        yield f"/{sections[rank % len(sections)]}/page-{rank}", max(1, int(_TOP_COUNT / rank**1.1))


def _write_visits(path: Path, truth: dict[str, int]) -> int:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as csv

    pages = pa.array(truth.keys())
    counts = list(truth.values())
    indices = pa.array([index for index, count in enumerate(counts) for _ in range(count)], type=pa.int32())
    csv.write_csv(pa.table({"page": pc.take(pages, indices)}), path)
    return len(indices)
