"""Li et al., *PrivSketch*: Table 1 and Figures 4 to 8, the attack on its ordering matrix, and dpsketch beside it."""

from __future__ import annotations

import math

import numpy as np

from dpsketch import local
from dpsketch.reproduce import Run

from . import experiments
from .data import TABLE_1, Sets, collect, read_sets, synthetic
from .drawing import HASHING, LEAST, MEAN, OLH, PRIVSKETCH, SVIM, UNSAMPLED, Panel, bars, lines
from .experiments import ALONE, DEFAULT, SHAPE, Sweep

STAND_INS = {"first sessions of Kosarak": "kosarak_head36682", "Gowalla for AOL": "gowalla"}


def reproduce(run: Run) -> None:
    shrink, people = (10, 10_000) if run.quick else (1, None)
    sets = [synthetic("Dataset1", shrink=shrink)]
    for name, file in STAND_INS.items():
        if (path := run.data(f"sets/{file}.dat.xz")) is not None:
            sets.append(read_sets(name, path, people))
    others = [synthetic(f"Dataset{i}", shrink=shrink) for i in ((2, 3) if run.quick else (2, 3, 4, 5, 6))]
    _table(run, sets + others)
    found = _frequencies(run, sets)
    _frequent_items(run, sets, found)
    _running_times(run, sets[0])
    _few_people(run, others[0])
    _parameters(run, sets[0], others[1:])
    _ordering_matrix(run)


def _orders(rival: float, own: float) -> float:
    """Return by how many orders of magnitude an error lies below a rival's."""
    return math.log10(rival / own)


def _some_keys(sets: Sets) -> np.ndarray:
    """Choose the keys over which Figures 7 and 8 take their means; decoding every bit of every report takes long."""
    return np.random.default_rng(8).choice(len(sets.keys), 1000, replace=False)


def _table(run: Run, sets: list[Sets]) -> None:
    run.section("Table 1: the sets", "Printed / here. Real sets that could not be had are replaced by others.")
    rows = []
    for one in sets:
        printed = TABLE_1[one.name.split()[-1]]
        rows.append([one.name, *(f"{a:,} / {b:,}" for a, b in zip(printed, one.row, strict=True))])
    run.table(["set", "people", "keys", "largest set", "smallest", "90th percentile"], rows)


def _frequencies(run: Run, sets: list[Sets]) -> list[Sweep]:
    run.section("Figure 4: error against ε", "Mean squared error over all keys; caps and ℓ are the 90th percentile.")
    epsilons = (0.5, DEFAULT, 16.0) if run.quick else (0.5, 1.0, 2.0, DEFAULT, 4.0, 8.0, 16.0)
    # The largest ε takes the longest; the quick form has it on the made sets alone.
    found = [experiments.sweep(one, epsilons[:-1] if run.quick and one is not sets[0] else epsilons) for one in sets]
    each = [experiments.errors(one, made) for one, made in zip(sets, found, strict=True)]
    panels = [Panel(one.name, "ε", "MSE", series) for one, series in zip(sets, each, strict=True)]
    run.figure("fig4", lines(panels), "Figure 4: mean squared error against ε")
    run.table(["ε", *each[0]], [[epsilon, *(points[epsilon] for points in each[0].values())] for epsilon in epsilons])
    for one, series in list(zip(sets, each, strict=True))[1:]:
        rival, name = series[OLH][DEFAULT], f"olh_{one.name.split()[-1].lower()}"
        run.number(name, _orders(rival, series[PRIVSKETCH][DEFAULT]), ours=_orders(rival, series[HASHING][DEFAULT]))
    olh, published, ours = (each[0][name] for name in (OLH, PRIVSKETCH, HASHING))
    mean = experiments.over_hashes(local.MultiPCMS(DEFAULT, **SHAPE), sets[0], draws=5)
    least = experiments.over_hashes(local.PrivSketchAsPublished(DEFAULT, **SHAPE), sets[0], draws=5)
    for name, rival in (("olh", olh[DEFAULT]), ("pcms", mean)):
        run.number(name, _orders(rival, least), ours=_orders(rival, ours[DEFAULT]))
    run.number("olh_at_16", _orders(olh[16.0], published[16.0]), ours=_orders(olh[16.0], ours[16.0]))
    odds = math.exp(0.5)
    stated = SHAPE["rows"] * SHAPE["width"] * odds / (odds - 1) ** 2 / sets[0].users
    run.number("stated_variance", published[0.5] / stated, ours=ours[0.5] / stated)
    printed = collect(local.PrivSketchAsPublished(DEFAULT, calibration="as_published", **SHAPE), sets[0])
    run.number("printed_mean", printed.value.mean(), ours=found[0][HASHING][DEFAULT].value.mean())
    return found


def _frequent_items(run: Run, sets: list[Sets], found: list[Sweep]) -> None:
    run.section(
        "Figure 5: frequent keys against k",
        "At ε = 3. Var is of numbers of people; an NCR of 1 is perfect. Gowalla has no panel here: the share of its "
        "most visited place is within the noise of its many places.",
    )
    shown = [(one, made) for one, made in zip(sets, found, strict=True) if not one.name.endswith("AOL")]
    sizes, repetitions = ((10, 50), 3) if run.quick else ((10, 20, 50, 100), 2)
    each = [experiments.frequent_items(one, made, sizes, repetitions) for one, made in shown]
    top = [Panel(one.name, "k", "Var", variance, "y") for (one, _), (variance, _) in zip(shown, each, strict=True)]
    low = [Panel(one.name, "k", "NCR", rank, "") for (one, _), (_, rank) in zip(shown, each, strict=True)]
    run.figure("fig5", lines(top + low, columns=len(shown)), "Figure 5: Var and NCR of the k most frequent keys")
    variance, rank = ({name: points[50] for name, points in series.items()} for series in each[0])
    run.number("ncr", rank[PRIVSKETCH] - rank[SVIM], ours=rank[HASHING] - rank[SVIM])
    run.number("var", _orders(variance[SVIM], variance[PRIVSKETCH]), ours=_orders(variance[SVIM], variance[HASHING]))


def _running_times(run: Run, sets: Sets) -> None:
    run.section("Figure 6: running time", "One core. The paper measured Python programs; these are compiled.")
    device, collector = experiments.running_times(sets)
    figure = bars(device, collector, ("one report on a device, seconds", "collecting and decoding all, seconds"))
    run.figure("fig6", figure, f"Figure 6: running times, {sets.users:,} people and {len(sets.keys):,} keys")
    run.number("seconds", device[PRIVSKETCH], ours=device[HASHING])
    run.number("faster", collector[ALONE] / collector[PRIVSKETCH], ours=collector[ALONE] / collector[HASHING])


def _few_people(run: Run, sets: Sets) -> None:
    run.section(
        "Figure 7: few people", "ε up to 128, as in the paper; dpsketch takes none above 20, and has no point there."
    )
    epsilons = (2.0, 16.0, 128.0) if run.quick else (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
    series = experiments.few_people(sets, epsilons, _some_keys(sets))
    panel = Panel(f"{sets.name}, {sets.users:,} people", "ε", "MSE", series)
    run.figure("fig7", lines([panel], wide=True), "Figure 7: mean squared error against ε, few people")
    best = min(series[name][2.0] for name in (MEAN, LEAST, UNSAMPLED))
    run.number("few_people", _orders(best, series[PRIVSKETCH][2.0]), ours=_orders(best, series[HASHING][2.0]))


def _parameters(run: Run, first: Sets, others: list[Sets]) -> None:
    run.section("Figure 8: M, K and d", "At ε = 3. Ours has neither rows nor width: one value, drawn as a line.")
    keys, powers = _some_keys(first), (4, 7, 9) if run.quick else range(4, 10)
    by_width = experiments.shapes({2**i: (first, keys, 4, 2**i) for i in powers})
    by_rows = experiments.shapes({2**i: (first, keys, 2**i, 32) for i in ((1, 4) if run.quick else range(6))})
    by_domain = experiments.shapes({len(one.keys): (one, _some_keys(one), 4, 128) for one in [*others, first]})
    panels = [
        Panel("(a) K = 4", "M", "MSE", by_width),
        Panel("(b) M = 32", "K", "MSE", by_rows),
        Panel("(c) K = 4, M = 128", "d", "MSE", by_domain, "y"),
    ]
    run.figure("fig8", lines(panels), "Figure 8: mean squared error against M, K and d")
    run.number("best_width", min(by_width[PRIVSKETCH], key=by_width[PRIVSKETCH].__getitem__))
    shapes = [local.MultiPCMS(DEFAULT, rows=rows, width=32) for rows in (1, 32)]
    few, many = (experiments.over_hashes(shape, first, keys, draws=10) for shape in shapes)
    run.number("rows_matter", few / many)
    small, large = min(by_domain[MEAN]), max(by_domain[MEAN])
    growth = {name: by_domain[name][large] / by_domain[name][small] for name in (PRIVSKETCH, HASHING)}
    run.number("domain_growth", growth[PRIVSKETCH], ours=growth[HASHING])


def _ordering_matrix(run: Run) -> None:
    domain, people = (10_000, 400) if run.quick else (100_000, 1000)
    run.section("The ordering matrix gives the set away", "No randomised bit is looked at; the attacker knows no size.")
    shares = {items: experiments.recovered(items, domain, people) for items in (1, 5, 20)}
    run.table(["items a person", f"whole set recovered, of {domain:,} keys"], list(shares.items()))
    run.number("one_item", shares[1])
    run.number("five_items", shares[5])
