"""RACE: its noise, density pictures, error against rows and ε, its bound, the Bernstein mechanism, and learning."""

from __future__ import annotations

import importlib.util
import math

import numpy as np

from dpsketch.reproduce import Run

from . import drawing, learning, measuring, pictures
from .measuring import DEFAULT, GAUSSIAN, NONPRIVATE, ONE_ROW, PUBLISHED, PURE


def reproduce(run: Run) -> None:
    noise(run)
    density_pictures(run)
    error_by_rows(run)
    error_by_epsilon(run)
    theorem(run)
    rival(run)
    linear_regression(run)
    if importlib.util.find_spec("sklearn"):
        classification(run)
    else:
        run.leave_out("classification", "it needs scikit-learn")
    skin_colours(run)  # last, so that the other numbers do not depend on whether the file is there


def noise(run: Run) -> None:
    run.section("The noise of a kernel sum (Algorithm 1, Theorem 3.2)", "Sketches of no points, 64 wide, at ε = 1.")
    rng, table = np.random.default_rng(1), []
    for rows in (100, 200, 500, 1000):
        found = measuring.noise_alone(rows, 50 if run.quick else 200, rng)
        table.append([rows, math.sqrt(2 * rows), *found[:2], math.sqrt(2 * rows * 64), *found[2:]])
    head = [f"{what}: {which}" for what in ("a sum", "N̂") for which in ("paper", "measured", "dpsketch, δ = 1e-6")]
    run.table(["sd with R =", *head], table)
    run.number("noise_sd", table[3][2], ours=table[3][3])
    run.number("count_sd", table[3][5], ours=table[3][6])
    floored, exact = measuring.rounding(rng)
    run.number("floor_bias", floored, ours=exact)


def density_pictures(run: Run) -> None:
    run.section("Density pictures (Fig. 2)", "2,000 points of a mixture, cells of width 1, 80 rows of 50 counters.")
    points = measuring.mixture(2000, 2)
    found = pictures.densities(points, 60 if run.quick else 200)
    run.figure("density", pictures.draw(found, points), "Sketches without noise and with it, and ours.")
    head = ["picture", "mean error over mean density", "of which noise"]
    run.table(head, [[title, one.error, one.noise] for title, one in found.items()])
    run.number("picture_noise", found[pictures.PAPER].noise, ours=found[pictures.MORE_ROWS].noise)
    run.number("picture_error", found[pictures.PAPER].error, ours=found[pictures.MORE_ROWS].error)


def error_by_rows(run: Run) -> None:
    run.section("Error against the number of rows", "A mixture in the plane, cells of width 2, 100 places.")
    panels, rows = {}, [30, 100, 300, 1000] if run.quick else [30, 100, 300, 1000, 3000]
    for size, epsilon, seeds in ((100_000, 1.0, 2 if run.quick else 8), (5000, 0.2, 4 if run.quick else 16)):
        asked = measuring.task(measuring.mixture(size, 2))
        found = [measuring.errors(asked, count, [epsilon], range(seeds)) for count in rows]
        lines = {name: [one[name][0] for one in found] for name in found[0]}
        panels[f"N = {size:,}, ε = {epsilon:g}"] = rows, lines
        if size == 5000:
            run.number("small_1000_rows", lines[PUBLISHED][3], ours=lines[DEFAULT][3])
            run.number("one_row_ratio", None, ours=np.mean(np.divide(lines[ONE_ROW], lines[PURE])))
        else:
            run.number("error_100_rows", lines[PUBLISHED][1], ours=lines[DEFAULT][1])
            run.number("error_1000_rows", lines[PUBLISHED][3], ours=lines[PURE][3])
    drawing.show(
        run, "rows", panels, "R", "Laplace noise has a best number of rows; Gaussian noise does not grow with them."
    )


def error_by_epsilon(run: Run) -> None:
    run.section(
        "Error against ε", "1,000 rows; dpsketch with δ = 0 takes the number of rows that suits ε, up to 1,000."
    )
    asked, budgets = measuring.task(measuring.mixture(5000, 2)), [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0]
    lines = measuring.errors(asked, 1000, budgets, range(3 if run.quick else 10), best=True)
    drawing.show(run, "epsilon", {"N = 5,000": (budgets, lines)}, "ε", "Error of a kernel sum against ε.")
    run.number("pure_error", lines[PUBLISHED][2], ours=lines[PURE][2])


def theorem(run: Run) -> None:
    run.section("The bound (Theorem 3.4)", "Median of means, 3,000 points, 240 rows, ε = 1, failure rate .05.")
    asked = measuring.task(measuring.mixture(3000, 2))
    held, slack, covered = measuring.theorem(asked, 240, range(10 if run.quick else 40))
    run.number("bound_holds", held, ours=covered)
    run.number("bound_slack", slack)


def rival(run: Run) -> None:
    run.section("Beside the Bernstein mechanism (Table 1)", "10,000 points; RACE and dpsketch with 1,000 rows.")
    panels, budgets = {}, [0.3, 1.0] if run.quick else [0.1, 0.3, 1.0, 3.0]
    for dim, degrees in {1: (16, 32, 64, 96), 2: (8, 12, 16, 24), 3: (4, 6, 8) if run.quick else (4, 6, 8, 10)}.items():
        asked = measuring.task(measuring.mixture(10_000, dim))
        lines = measuring.bernstein_errors(asked, degrees, budgets, 3 if run.quick else 20)
        found = measuring.errors(asked, 1000, budgets, range(2 if run.quick else 8), best=True)
        lines |= {name: found[name] for name in (PUBLISHED, PURE, DEFAULT)}
        panels[f"{dim} dimension{'s' * (dim > 1)}"] = budgets, lines
        one = budgets.index(1.0)
        theirs = lines["Bernstein, as published (δ = 0)"][one]
        run.number(f"bernstein_{dim}d", theirs / lines[PUBLISHED][one], ours=theirs / lines[PURE][one])
    drawing.show(run, "bernstein", panels, "ε", "The Bernstein mechanism has its best degree and order in hindsight.")


def classification(run: Run) -> None:
    run.section(
        "Classification of digits", "Angular kernel, power 4; 20 rows for δ = 0, 800 for δ = 1e-5 and no noise."
    )
    budgets = [1.0, 3.0] if run.quick else [0.1, 0.3, 1.0, 3.0, 10.0]
    lines, one = learning.digit_scores(budgets, range(2 if run.quick else 10)), budgets.index(1.0)
    panels = {"digits, 70/30": (budgets, lines)}
    drawing.show(run, "digits", panels, "ε", "Share of digits that are right.", "share that is right", log=False)
    run.number("digits_nonprivate", lines[NONPRIVATE][one])
    run.number("digits_laplace_800", lines[learning.MANY_ROWS][one])
    run.number("digits_pure", lines[PUBLISHED][one], ours=lines[PURE][one])
    run.number("digits_gaussian", lines[GAUSSIAN][one], ours=lines[DEFAULT][one])


def linear_regression(run: Run) -> None:
    rows, seeds = (1000, range(2)) if run.quick else (8000, range(4))
    run.section("Regression by paired projections", f"20,000 made records, five features, {rows:,} rows, ε = 1.")
    found = learning.regression_errors(rows, seeds)
    run.table(["fit", "mean square error"], list(found.items()))
    ours = found[learning.ONCE]
    run.number("regression_loss", found[learning.LOSS_ALONE])
    run.number("regression_laplace", found[learning.PAIRED_LAPLACE], ours=ours)
    run.number("regression_gaussian", found[learning.PAIRED_GAUSSIAN], ours=ours)


def skin_colours(run: Run) -> None:
    path = run.data("kde/33_skin.npz")
    if path is None:
        return
    run.section("Skin colours (UCI), three dimensions", "Standardised; cells of width .5; bounds ±2.5; 1,000 rows.")
    points = np.random.default_rng(5).permutation(np.load(path)["X"].astype(np.float64))
    points = points[:20_000] if run.quick else points
    asked = measuring.task(points, bandwidth=0.5, bounds=(-2.5, 2.5), blur=0.1)
    budgets = [0.03, 0.1] if run.quick else [0.01, 0.03, 0.1, 0.3, 1.0]
    lines = measuring.bernstein_errors(asked, (4, 6) if run.quick else (4, 6, 8), budgets, 3)
    found = measuring.errors(asked, 1000, budgets, range(2 if run.quick else 4), best=True)
    lines |= {name: found[name] for name in (NONPRIVATE, PUBLISHED, PURE, DEFAULT)}
    drawing.show(run, "skin", {f"N = {len(points):,}": (budgets, lines)}, "ε", "Kernel sums of skin colours.")
    one = budgets.index(0.1)
    run.number("skin_error", lines[PUBLISHED][one], ours=lines[DEFAULT][one])
    if importlib.util.find_spec("sklearn"):
        scores = learning.skin_scores(path, 1.0, range(1 if run.quick else 3))
        run.number("skin_right", scores[PUBLISHED], ours=scores[DEFAULT])
