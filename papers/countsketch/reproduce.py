"""Pagh and Thorup, *Improved Utility Analysis of Private CountSketch*: its five figures, then what dpsketch adds."""

from __future__ import annotations

import numpy as np

import dpsketch as dps
from dpsketch.reproduce import Run

from .baskets import MARKETS, read_baskets
from .drawing import Panel, distributions, error_table, named, quantile, root_mean_square, series
from .mechanisms import BUDGET, NOISELESS, PUBLISHED, compare, crafted_user, market, release


def reproduce(run: Run) -> None:
    for part in (noise_alone, sparse_vectors, cities, markets, decoding, one_user):
        part(run)


def noise_alone(run: Run) -> None:
    run.section("Figures 1 and 2: noise alone", "A sketch of nothing, whose counters have noise of variance k.")
    keys = np.arange(50_000 if run.quick else 400_000)
    found = compare((3, 7, 15, 31, 63), len(keys), 1.0, keys, np.zeros(len(keys), np.int64), 1, grid=2**-10)
    panel = Panel("Median of k Gaussians with mean zero and variance k", *named(found, only=63), 5)
    distributions(run, "fig1", "Figure 1: the noise of an estimate from k rows of variance k.", [panel], "density")
    panel = Panel("Additional error over CountSketch in a zero variance setting", *named(found, only=63), 5, 1.0)
    distributions(run, "fig2", "Figure 2: the size of that noise.", [panel], "sizes")
    error_table(run, *named(found))
    for k in (3, 63):
        run.number(f"fig1_variance_{k}", found["median"][k].var(), ours=found["robust"][k].var())
    run.number("fig2_q95_15", quantile(found["median"][15], 0.95), ours=quantile(found["robust"][15], 0.95))
    cells = release(63, 50_000, 1.0, [], grid=2**-10).table / 2**10
    run.number("shares_deviation", np.median(cells[:15], axis=0).std())
    run.number("countmin_variance", cells.min(axis=0).var(), ours=found["robust"][63].var())


def sparse_vectors(run: Run) -> None:
    run.section("Figure 3: sparse vectors", "As many entries of 10 as a row has cells; thrice as many absent keys.")
    width, seeds, joint = (8192, 1, (31,)) if run.quick else (16384, 3, (15, 31, 63))
    keys, truth = np.arange(4 * width), np.repeat([10, 0], [width, 3 * width])
    found = compare((1, 3, 7, 15, 31, 63), width, 1.0, keys, truth, seeds, grid=2**-10, joint=joint)
    panel = Panel("Cumulative error distribution for sparse vectors, entries in {0, 10}", *named(found, 31), 15, 1.0)
    distributions(run, "fig3", "Figure 3: errors on a sparse vector with one entry a cell.", [panel], "errors")
    error_table(run, *named(found))
    for k in (1, 15, 63):
        run.number(f"fig3_q90_{k}", quantile(found["median"][k]), ours=quantile(found["robust"][k]))
    run.number("fig3_q90_31_decoded", quantile(found["median"][31]), ours=quantile(found["joint"][31]))


def cities(run: Run) -> None:
    path = run.data("cities/world_cities_population_simplemaps.txt")
    if path is None:
        return
    people = np.array([int(line) for line in path.read_text().split()])
    run.section("Figure 4: world cities", f"{len(people):,} cities. Tables count in the Gaussian mechanism's σ.")
    run.number("cities", len(people))
    panels, draw = [], np.random.default_rng(4)
    for side, width, sigma, rounds in (("left", 10_000, 1e4, 8), ("right", 1000, 1e5, 16)):
        seeds = 1 if run.quick else rounds
        found = compare((1, 3, 5, 9, 19), width, sigma, np.arange(len(people)), people, seeds, joint=(19,))
        run.text(f"b = {width:,}, σ = {sigma:,.0f}:")
        error_table(run, *named(found), scale=sigma)
        # The paper draws 10,000 errors; as many here, since the smoothing depends on their number.
        shown = [{name: draw.choice(one, 10_000) for name, one in group.items()} for group in named(found, 19)]
        panels.append(Panel(f"World cities, b={width}, DP noise of magnitude {sigma:.0e}", *shown, 30 * sigma, sigma))
        for k, ours, ending in ((1, "robust", ""), (19, "robust", ""), (19, "joint", "_decoded")):
            name = f"fig4_{side}_q90_{k}{ending}"
            run.number(name, quantile(found["median"][k]) / sigma, ours=quantile(found[ours][k]) / sigma)
    distributions(run, "fig4", "Figure 4: errors on cities, smoothed by Scott's rule.", panels, "density")


def markets(run: Run) -> None:
    run.section("Figure 5: market baskets", "Privacy for a whole basket, ε = 1, δ = 1e-6; k = 5.")
    panels = []
    for name, files, times, width, most, title in MARKETS:
        path = run.data(*files)
        if path is None:
            continue
        baskets = read_baskets(path).first(most).repeated(times)
        keys, truth = baskets.counted()
        seeds = 1 if run.quick else 8 if times == 1 else 3
        errors, clipped = market(baskets, keys, truth, width, most, seeds)
        standard, published, worst, median, ours, joint = errors
        run.text(f"**{title}**: {len(baskets.items):,} records of {len(keys):,} items, b = {width}, m = {most}:")
        error_table(run, errors)
        shown = [{label: errors[label] for label in group} for group in ((published, standard), (ours, joint))]
        if name not in ("kosarak_head", "kosarak_short"):
            panels.append(Panel(f"{title}, k=5, b={width}, m={most}", *shown, quantile(errors[published], 0.96)))
        run.number(f"fig5_{name}_q90", quantile(errors[published]), ours=quantile(errors[ours]))
        ratios = [quantile(errors[one]) / quantile(errors[standard]) for one in (published, ours)]
        run.number(f"fig5_{name}_ratio", ratios[0], ours=ratios[1])
        if name in ("kosarak", "retail"):
            run.number(f"fig5_{name}_records", len(baskets.items))
            run.number(f"fig5_{name}_items", len(keys))
    if panels:
        distributions(run, "fig5", "Figure 5: errors on market baskets.", panels, "errors")
    if path is not None:  # retail's, the last
        run.number("clip_q90", quantile(errors[worst]), ours=quantile(errors[median]))
        run.number("clipped_users", None, ours=1e5 * clipped)
        basket_sizes(run, read_baskets(path))


def basket_sizes(run: Run, baskets) -> None:
    run.section("Clipping against m√k", "Retail, with the first m items of a basket; errors against the uncut counts.")
    sizes = (5, 30, 76) if run.quick else (3, 5, 10, 20, 30, 50, 76)
    found = [market(baskets.first(m), *baskets.counted(), 500, m, 1 if run.quick else 3)[0] for m in sizes]
    lines = {name: [root_mean_square(errors[name]) for errors in found] for name in found[0]}
    run.table(["m", *lines], [[m, *values] for m, *values in zip(sizes, *lines.values(), strict=True)])
    ours = {name: lines.pop(name) for name in ("clipped, median", "dpsketch estimate", "dpsketch decode")}
    labels = ("m, the most items of a basket", "root mean square error")
    series(run, "clipping", "What a larger basket costs, by the bound on it.", sizes, lines, ours, labels)


def decoding(run: Run) -> None:
    run.section("Median, robust and joint decoding", "Zipf(1.1), 40,000 keys; in the Gaussian mechanism's σ.")
    keys, truth = np.arange(40_000), np.floor(6e5 / np.arange(1, 40_001) ** 1.1).astype(np.int64)
    for rows, width, sigma in ((15, 1000, 30), (31, 1000, 100), (7, 4096, 30)):
        found = compare((rows,), width, sigma, keys, truth, 1 if run.quick else 4, joint=(rows,))
        run.text(f"k = {rows}, b = {width}, σ = {sigma}:")
        error_table(run, {name: one[rows] for name, one in found.items()}, scale=sigma)
        values = [root_mean_square(found[name][rows]) / sigma for name in ("median", "joint")]
        run.number(f"decode_{rows}", values[0], ours=values[1])
    shapes = (3, 7) if run.quick else (3, 5, 7, 15, 31, 63)
    found = compare(shapes, 1000, 30, keys, truth, 1 if run.quick else 2, joint=shapes)
    lines = {name: [root_mean_square(one[k]) / 30 for k in shapes] for name, one in found.items()}
    ours = {"dpsketch estimate": lines.pop("robust"), "dpsketch decode": lines.pop("joint")}
    lines["Gaussian mechanism on the counts"] = [1.0] * len(shapes)
    caption, labels = "Four ways to read one release, b = 1000, σ = 30.", ("rows k", "root mean square error / σ")
    series(run, "decoding", caption, shapes, lines, ours, labels)


def one_user(run: Run) -> None:
    run.section("What one user can do", "30 keys crafted to collide, and the budgets that the noise stands for.")
    crafted = crafted_user(5, 500, np.arange(200_000), 30)
    sketch = dps.CountSketch(rows=5, width=500, unit=dps.per_user(30))
    sketch.update(crafted, users=np.zeros(30, np.int64))
    norms = [np.linalg.norm(one.table) for one in (release(5, 500, NOISELESS, crafted), sketch.release(rho=1e9))]
    local = dps.CountSketch(rows=5, width=500, unit=dps.per_user(30, neighbours="replace")).release(**BUDGET)
    spent = 0.5 * (2 * local.guarantee.costs[0].mu) ** 2  # read literally, the text asks a device for half the noise
    stated = [sketch.spec.preview(rho=rho).guarantee.epsilon for rho in (0.5 / PUBLISHED**2, spent)]
    noises = [30 * 5**0.5 * PUBLISHED, sketch.spec.preview(**BUDGET).noise_scale]
    found = (
        ("crafted_norm", "a crafted basket's norm (√(km) = 12.25)", *norms),
        ("fig5_noise", "noise of a counter, retail", *noises),
        ("fig5_epsilon", "ε of Figure 5's noise, asked: 1", stated[0], BUDGET["epsilon"]),
        ("local_epsilon", "ε of a local report, asked: 1", stated[1], local.guarantee.epsilon),
    )
    run.table(["5 rows of 500 cells, 30 items", "as published", "dpsketch"], [line[1:] for line in found])
    for name, _, published, ours in found:
        run.number(name, published, ours=ours)
