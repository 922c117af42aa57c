"""Which keys are there, and how often? Beside OpenDP, PipelineDP and Tumult at equal budget: keys found, error, time.

Records and users of four data sets (Zipf(1.1) and, where ``DPSKETCH_DATA`` has them, retail, kosarak's head and
gowalla) at ε = 0.1, 1 and 3. δ = 1e-6 for records, 1e-5 for users. Each library groups, adds noise and lists what
passes; a grouping without privacy stands beside them for time. OpenDP gets the least threshold and scale that its own
accounting allows, for Laplace and for Gaussian noise; PipelineDP its partition selection, half of the budget, and noise
on counts from the other half, which is how it divides by default, and its threshold on Gaussian counts. Tumult Core's
partition selection gets all of ε and lists noisy counts with the names; Tumult Analytics ``get_groups`` with half of ε
and a count by these groups with the other. At user level every rival may choose its cap of keys a user among 1, 10, 30
and 100 after the fact, once for the most keys and once for the least error; ours has 100, and chooses its mechanism by
public facts. Tumult's scales and thresholds are its own; noise of that law comes from NumPy, and two cases run through
its sessions on Spark, where a release takes seconds to minutes.

A further table has ours and theirs in the same form, with the same cap. Where both add Laplace noise to one key a
record, numbers of keys that chance makes a little larger or smaller are no comparison: another table has their
expectations, which the law of the noise, the threshold and the exact counts give.

``python -m benchmarks histogram`` writes docs/explanation/histogram-peers.md.
"""

from __future__ import annotations

import lzma
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.histogram_rivals import CAPS, SEEDS, Cell, Claim, Integers, rivals
from benchmarks.peers import ROOT
from dpsketch.privacy import per_record, per_user
from dpsketch.sketches.histogram import Histogram

PAGE = ROOT / "docs" / "explanation" / "histogram-peers.md"
OURS = "dpsketch"
GAUSSIAN = 'dpsketch, `form="gaussian"`'
RIVALS = (
    "OpenDP, Laplace", "OpenDP, Gaussian", "PipelineDP", "PipelineDP, Gaussian", "Tumult Core", "Tumult Analytics",
)  # fmt: skip
# Of these with their seconds.
TIMED = RIVALS[:4]
# A cap with the least error must name at least this part of what the cap with the most keys does.
HALF = 0.5
ON_SPARK = " on Spark"
# Theirs, and the form of ours that has the same noise.
SAME_FORM = {"OpenDP, Laplace": "truncated", "Tumult Core": "truncated", "OpenDP, Gaussian": "gaussian"}
SAME_CAPS = (10, 30)
# By so many keys in a hundred thousand may an expectation be lower: what noise that is cut off lacks in its tail.
NO_FEWER = 1 - 1e-5


def data_sets() -> dict[str, tuple[Integers, Integers]]:
    """Return the data sets as pairs of users and keys; a stream of records has no users."""
    law = np.arange(1, 40_001) ** -1.1
    stream = np.random.default_rng(1).choice(40_000, size=500_000, p=law / law.sum())
    found = {"Zipf(1.1)": (np.empty(0, np.int64), stream)}
    folder = os.environ.get("DPSKETCH_DATA")
    for name, file in (("retail", "retail"), ("kosarak's head", "kosarak_head36682"), ("gowalla", "gowalla")):
        if folder:
            found[name] = _pairs(Path(folder) / "sets" / f"{file}.dat.xz")
    return found


def _pairs(path: Path) -> tuple[Integers, Integers]:
    users, keys = [], []
    with lzma.open(path, "rt") as lines:
        for user, line in enumerate(lines):
            held = np.array(sorted(set(map(int, line.split()))), np.int64)
            users.append(np.full(len(held), user))
            keys.append(held)
    return np.concatenate(users), np.concatenate(keys)


class Counted:
    """Our histograms of one data set, by unit; counting is timed once."""

    def __init__(self, name: str, users: Integers, keys: Integers) -> None:
        self.name, self._users, self._keys = name, users, keys
        self._truth = np.bincount(keys)
        self._sketches: dict[tuple[str, int], Histogram] = {}

    def _sketch(self, level: str, cap: int) -> Histogram:
        if (level, cap) not in self._sketches:
            sketch = Histogram(unit=per_user(cap) if level == "user" else per_record(), key_type="int")
            sketch.update(self._keys, **({"users": self._users} if level == "user" else {}))
            self._sketches[level, cap] = sketch
        return self._sketches[level, cap]

    def cell(self, level: str, epsilon: float, cap: int, form: Any = None) -> Cell:
        """Return what our releases find."""
        sketch, delta = self._sketch(level, cap), 1e-5 if level == "user" else 1e-6
        start = time.perf_counter()
        releases = [sketch.release(epsilon=epsilon, delta=delta, form=form) for _ in range(SEEDS[epsilon])]
        spent = (time.perf_counter() - start) / len(releases)
        errors = np.concatenate([release.values - self._truth[release.keys] for release in releases]).astype(float)
        rms = float(np.sqrt(np.mean(errors**2))) if len(errors) else None
        found = float(np.mean([len(release.keys) for release in releases]))
        return Cell(self.name, level, epsilon, OURS, cap, found, rms, spent, releases[0].law.cutoff)

    def expected(self, epsilon: float, cutoff: float, *, cut_off: bool) -> float:
        """Return how many keys Laplace noise lists on average from a cutoff on; the noise may be cut off below it."""
        share = math.exp(-epsilon)
        counts, keys = np.unique(self._truth[self._truth > 0], return_counts=True)
        # Noise of at least what is missing to the cutoff; and beyond the largest that there is.
        missing = math.ceil(cutoff) - counts.astype(float)
        passing = np.where(missing > 0, share ** np.abs(missing), 1 + share - share ** (1 + np.abs(missing)))
        beyond = share ** math.ceil(cutoff) if cut_off else 0.0
        return float(keys @ ((passing - beyond) / (1 + share - 2 * beyond)).clip(0, 1))

    def grouping(self) -> float:
        """Return the seconds that a grouping without privacy takes."""
        start = time.perf_counter()
        pl.DataFrame({"key": self._keys}).group_by("key").len()
        return time.perf_counter() - start


def run() -> list[dict[str, Any]]:
    """Measure all cells; the ratio is keys that ours finds over those of the rival that finds the most."""
    sets = data_sets()
    theirs, claim = rivals(sets)
    rows, cells, same, plain, expected = [], list(theirs), [], {}, []
    for name, (users, keys) in sets.items():
        counted = Counted(name, users, keys)
        plain[name] = counted.grouping()
        for level in ("record", "user") if len(users) else ("record",):
            for epsilon in SEEDS:
                mine = counted.cell(level, epsilon, 100)
                cells.append(mine)
                if level == "user":
                    forced = [counted.cell(level, epsilon, cap, "gaussian") for cap in CAPS]
                    cells += [cell._replace(how=GAUSSIAN) for cell in forced]
                most = max(cell.keys for cell in theirs if cell[:3] == mine[:3])
                rows.append(
                    {
                        "name": f"keys of {name} by {level}, ε = {epsilon:g}, against the best rival",
                        "ours": mine.keys,
                        "theirs": most,
                        "ratio": mine.keys / max(most, 1e-9),
                        "unit": "keys found",
                        "reach": least_ratio(mine.keys, most, SEEDS[epsilon]),
                    }
                )
                for rival in theirs:
                    if rival[:3] != mine[:3] or rival.how not in SAME_FORM:
                        continue
                    if level == "user" and rival.cap not in SAME_CAPS:
                        continue
                    ours = counted.cell(level, epsilon, rival.cap, SAME_FORM[rival.how])
                    same.append((ours, rival))
                    if level == "record" and SAME_FORM[rival.how] == "truncated":
                        assert ours.threshold is not None
                        assert rival.threshold is not None
                        means = (
                            counted.expected(epsilon, ours.threshold, cut_off=True),
                            counted.expected(epsilon, rival.threshold, cut_off=False),
                        )
                        expected.append((ours, rival, *means))
    for mine, rival in same:
        if mine.rms is not None and rival.rms is not None and min(mine.keys, rival.keys) >= 30:
            shape = f"{mine.data} by {mine.level}, ε = {mine.epsilon:g}, at most {mine.cap}"
            rows.append(
                {
                    "name": f"error of {shape}, the form of {rival.how}",
                    "ours": mine.rms,
                    "theirs": rival.rms,
                    "ratio": rival.rms / mine.rms,
                    "unit": "rms",
                    "reach": least_error_ratio(mine.keys, rival.keys),
                }
            )
    for mine, rival, ours_mean, their_mean in expected:
        rows.append(
            {
                "name": f"expected keys of {mine.data} by record, ε = {mine.epsilon:g}, against {rival.how}",
                "ours": ours_mean,
                "theirs": their_mean,
                "ratio": ours_mean / their_mean,
                "unit": "keys",
                "reach": NO_FEWER,
            }
        )
    PAGE.write_text(page(cells, same, expected, claim, plain), encoding="utf-8")
    return rows


def least_ratio(ours: float, theirs: float, seeds: int) -> float:
    """Return 1 less three standard errors of two means of so many numbers of keys, each with a variance of a tenth.

    Only keys near the threshold are found in some releases and not in others: a tenth of all is more than they come to.
    """
    return 1 - 3 * math.sqrt(0.1 * (ours + theirs) / seeds) / max(theirs, 1.0)


def least_error_ratio(ours: float, theirs: float) -> float:
    """Return 1 less three standard errors of the ratio of two rms errors of Laplace noise (a kurtosis of 6)."""
    return 1 - 3 * math.sqrt(5 / 4 * (1 / ours + 1 / theirs))


def page(
    cells: list[Cell],
    same: list[tuple[Cell, Cell]],
    expected: list[tuple[Cell, Cell, float, float]],
    claim: Claim,
    plain: dict[str, float],
) -> str:
    """Return all tables as a page."""
    remark = (
        f"OpenDP's `make_laplace_threshold` states δ = {claim.stated:.3g} for a threshold of 3 at scale 1 and lists a "
        f"key that one record alone holds in {claim.shown:.3g} of 20,000 draws: it lists counts *at* the threshold, "
        "and its δ is that of counts above it. So that all have the δ that is stated, its thresholds here are one "
        "higher than it asks for. Its Gaussian thresholds need no such correction, as counts are floats there "
        "([opendp#2922](https://github.com/opendp/opendp/issues/2922))."
    )
    columns = (OURS, *RIVALS)
    text = [
        "# Histograms beside OpenDP, PipelineDP and Tumult",
        "",
        "How many keys each names, and the root mean square error of their counts, at equal (ε, δ): means of "
        "three releases at ε = 0.1, where few are named, and one from 1 on. `python -m benchmarks histogram` writes "
        "this page. At record level the threshold is in brackets. At user level a rival's cap of keys a user is the "
        "best of 1, 10, 30 and 100 for its number of keys, chosen after the fact (in brackets), and its error includes "
        "what the cap cut; ours is told 100 beforehand.",
        "",
        "PipelineDP appears twice: as it divides a budget by default, and with Gaussian noise and "
        "`post_aggregation_thresholding`, where one noisy count gives both the name and its count.",
        "",
        "Tumult Core's partition selection gets all of ε, and gives noisy counts with the names. Tumult Analytics, the "
        "library for users, gives names alone by `get_groups`; here it gets half of ε for them, and half for a count "
        "by these groups. Where m keys of a user move, its threshold is that of a group: δ/(m·e^ε) for each. Scales "
        "and thresholds are what Tumult itself (0.21, and 0.19 of its core) states; noise of that law was drawn by "
        "NumPy, as its own exact draws take a tenth of a millisecond each.",
        "",
        *(_on_spark(cell, cells) for cell in cells if cell.how.endswith(ON_SPARK)),
        "",
        *([remark, ""] if claim.off else []),
        f"| data | unit | ε | {' | '.join(columns)} |",
        f"|---|---|---|{'---|' * len(columns)}",
    ]
    for data, level, epsilon in dict.fromkeys(cell[:3] for cell in cells):
        here = [cell for cell in cells if cell[:3] == (data, level, epsilon)]
        best = {how: max((cell for cell in here if cell.how == how), key=lambda cell: cell.keys) for how in columns}
        shown = (_cell(best[how], bracket=how != OURS or level == "record") for how in columns)
        text.append(f"| {data} | {level} | {epsilon:g} | {' | '.join(shown)} |")
    text += [
        "",
        "## The least error",
        "",
        "Users again, with the cap (in brackets) that has the least error and names at least half as many keys as the "
        'cap of the table above. `form="gaussian"` of ours chooses its cap in the same way; the default is told 100.',
        "",
        f"| data | ε | {' | '.join((OURS, GAUSSIAN, *RIVALS))} |",
        f"|---|---|{'---|' * (2 + len(RIVALS))}",
    ]
    for data, level, epsilon in dict.fromkeys(cell[:3] for cell in cells if cell.level == "user"):
        here = [cell for cell in cells if cell[:3] == (data, level, epsilon)]
        least = {how: least_error([cell for cell in here if cell.how == how]) for how in (OURS, GAUSSIAN, *RIVALS)}
        shown = (_cell(cell, bracket=how != OURS) for how, cell in least.items())
        text.append(f"| {data} | {epsilon:g} | {' | '.join(shown)} |")
    text += [
        "",
        "## The same form, the same cap",
        "",
        "Ours with `form=` forced to the rival's kind of noise: truncated Laplace beside Laplace, and Gaussian beside "
        "Gaussian; Tumult selects by Laplace noise only. Laplace forms have the same scale in all three, and ours is "
        "cut off besides. A lower threshold lists more keys that just pass, whose noise is upwards: errors of what is "
        "listed then are a little larger, though those of the same keys are not.",
        "",
        "| data | unit | ε | cap | form | dpsketch | rival | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for mine, rival in same:
        shape = f"{mine.data} | {mine.level} | {mine.epsilon:g} | {mine.cap} | {SAME_FORM[rival.how]}"
        text.append(f"| {shape} | {_cell(mine, threshold=True)} | {_cell(rival, threshold=True)} | {rival.how} |")
    fewer = max((their_mean - ours_mean for _, _, ours_mean, their_mean in expected), default=0.0)
    text += [
        "",
        "## Expected numbers of keys",
        "",
        "At record level ours and theirs often have one threshold and noise of one scale, and which of them finds some "
        "more keys is chance. How many keys each lists on average follows from the exact counts, the threshold and the "
        "law of the noise, without a draw. Where thresholds are equal, noise that is cut off lists fewer by what would "
        f"lie beyond: {fewer:.2g} keys at most.",
        "",
        "| data | ε | dpsketch | rival | | difference |",
        "|---|---|---|---|---|---|",
    ]
    for mine, rival, ours_mean, their_mean in expected:
        shown = (
            f"{mean:,.3f} (T = {math.ceil(cell.threshold or 0):,})"
            for cell, mean in ((mine, ours_mean), (rival, their_mean))
        )
        gap = f"{ours_mean - their_mean:+,.4f}"
        text.append(f"| {mine.data} | {mine.epsilon:g} | {' | '.join(shown)} | {rival.how} | {gap} |")
    text += [
        "",
        "## Seconds a release",
        "",
        "Of ours, OpenDP and PipelineDP without counting: ours counts once for all releases, they were given counts. "
        "Beside them polars' grouping by key, without privacy. Tumult's are above. They are by the clock of a machine "
        "that does other work too: compare them within a row.",
        "",
        f"| data | unit | ε | {' | '.join((OURS, *TIMED))} | polars |",
        f"|---|---|---|{'---|' * (2 + len(TIMED))}",
    ]
    for data, level, epsilon in dict.fromkeys(cell[:3] for cell in cells):
        here = [cell for cell in cells if cell[:3] == (data, level, epsilon)]
        times = (max(cell.seconds for cell in here if cell.how == how) for how in (OURS, *TIMED))
        shown = (f"{seconds:.2g}" for seconds in times)
        text.append(f"| {data} | {level} | {epsilon:g} | {' | '.join(shown)} | {plain[data]:.2g} |")
    return "\n".join(text) + "\n"


def least_error(cells: list[Cell]) -> Cell:
    """Return the cap with the least error of those that name at least half as many keys as the one with the most."""
    most = max(cell.keys for cell in cells)
    enough = [cell for cell in cells if cell.keys >= HALF * most]
    return min(enough, key=lambda cell: math.inf if cell.rms is None else cell.rms)


def _on_spark(job: Cell, cells: list[Cell]) -> str:
    """Return what a job on Spark gave, beside the same without Spark."""
    how = job.how.removesuffix(ON_SPARK)
    same = next(cell for cell in cells if cell.how == how and cell[:3] == job[:3] and cell.cap == job.cap)
    return (
        f"- {how}, {job.data} by {job.level} (at most {job.cap}), ε = {job.epsilon:g}, one release on Spark: "
        f"{_cell(job)} in {job.seconds:.0f} s; without Spark {_cell(same)}."
    )


def _cell(cell: Cell, *, bracket: bool = False, threshold: bool = False) -> str:
    error = "–" if cell.rms is None else f"{cell.rms:.3g}"
    within = f" (T = {math.ceil(cell.threshold):,})" if cell.threshold is not None else ""
    if bracket and cell.level == "user":
        within = f" ({cell.cap})"
    return f"{cell.keys:,.0f}; {error}" + (within if bracket or threshold else "")
