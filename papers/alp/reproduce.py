"""The ALP mechanism: its error law, its parameters, the composite, and what the library makes of them."""

from __future__ import annotations

import math

import numpy as np

from dpsketch._compiled.sparse import walk  # Figure 2 reads bits that no release of ours holds
from dpsketch.reproduce import Run

from . import pictures, rivals
from .experiments import DOMAIN, Form, bounded_errors, composite_errors, published, summary, sweep, uniform_errors

EXAMPLE = (1, 1, 1, 0, 1, 0, 0, 1)  # the bits that the hash functions of Figure 2 pick
AS_PUBLISHED = published(1.0, 3, 0.1)
DEFAULT = Form(1.0, 2, 0.04)
VALUES = (0, 1, 3, 10, 30, 60, 100, 300)
MEASURES = ("mean abs. error", "sd", "90th percentile", "bias")
READ_BY = {"walk": "the paper's walk", "mean": "posterior mean", "median": "posterior median"}


def reproduce(run: Run) -> None:
    for part in (_example, _error_law, _what_helps, _sweeps, _composite, _opendp):
        part(run)


def _example(run: Run) -> None:
    run.section("Figure 2: reading one entry", "The bits that the figure highlights, read by our kernel.")
    estimate = walk(np.array(EXAMPLE, np.uint8)[:, None]).item()
    run.figure("fig2", pictures.walk(EXAMPLE, estimate), "Figure 2: the partial sums peak at 3 and 5")
    run.number("example", estimate)


def _error_law(run: Run) -> None:
    queries, count = (50_000, 10_000) if run.quick else (1_000_000, 100_000)
    run.section(
        "Figure 3: the law of the error",
        f"{queries:,} values uniform in [0, 2000] at ε = 1, among keys that fill a tenth of every column. The paper's "
        "scale ε' = ε is what dpsketch uses at ε = ln 2 for one record, so the published form is released at that ε "
        f"with α = 3 and read by its walk. The second series ({count:,} values) is dpsketch as it comes: ε = 1, α = 2, "
        "the scale e − 1 that one record allows, collisions 0.04, posterior mean.",
    )
    errors = uniform_errors(AS_PUBLISHED, top=2000, queries=queries, estimators=("walk",))[0]["walk"]
    ours = uniform_errors(DEFAULT, top=2000, queries=count, estimators=("mean",), keys=12_500, seed=2)[0]["mean"]
    run.figure("fig3", pictures.error_law(errors, ours, 40), "Figure 3: error distribution at ε = 1")
    for name, value, mine in zip(("mae", "sd", "q90", "bias"), summary(errors), summary(ours), strict=True):
        run.number(name, value, ours=mine)
    short = uniform_errors(AS_PUBLISHED, top=44, queries=count, estimators=("walk",), share=0.04)[0]["walk"]
    run.text(
        "The paper does not say which β it used, and the error depends on it: an estimate cannot leave [0, β]. The "
        "printed numbers need β of a thousand or more. At the β that the composite itself would choose for 2³² keys, "
        f"44, the mean absolute error is {summary(short)[0]:.2f}."
    )
    run.number("mae_short", summary(short)[0])


def _what_helps(run: Run) -> None:
    run.section(
        "From the published form to the default",
        "The paper's experiment at β = 1000. A record's exact loss, ln(1 + ε'), allows a finer scale for the same "
        "guarantee; the posterior removes the bias that collisions cause. The third release takes the space of the "
        "first: finer columns are paid for with more collisions. The default takes more space than the paper has.",
    )
    crowded = -math.expm1(math.log(0.9) * math.expm1(1.0))  # e − 1 times as many columns, and as much shorter ones
    forms = {
        "as published": AS_PUBLISHED,
        "exact loss": Form(1.0, 3, 0.1),
        "exact loss, the published space": Form(1.0, 3, crowded),
        "default (α = 2, collisions 0.04)": DEFAULT,
    }
    rows, mae = [], {}
    for name, form in forms.items():
        queries, keys = 10_000 if run.quick else 100_000, 12_500 if form == DEFAULT else 25_000
        found, bits = uniform_errors(form, top=1000, queries=queries, estimators=(*READ_BY,), keys=keys, seed=4)
        rows += [[name, READ_BY[each], *summary(errors), round(bits)] for each, errors in found.items()]
        mae |= {(name, each): summary(errors)[0] for each, errors in found.items()}
    run.table(["release at ε = 1", "read by", *MEASURES, "bits a key"], rows)
    run.number("posterior", mae["as published", "median"])
    run.number("exact_loss_gain", mae["as published", "walk"] / mae["exact loss", "walk"])
    run.number("same_space", mae["as published", "walk"], ours=mae["exact loss, the published space", "mean"])


def _sweeps(run: Run) -> None:
    run.section(
        "α and s",
        "The paper leaves these sweeps to its full version and reports two findings: α = 3 as a good choice, and an "
        "error slightly below 5 from s ≥ 100k on, which is a collision probability of at most 0.01. Scale ε' = 1 and "
        "β = 500 throughout. The posterior mean is best in mean square; where collisions are rare the walk's mean "
        "absolute error is a little smaller.",
    )
    size = {"top": 500, "queries": 5_000 if run.quick else 50_000, "estimators": ("walk", "mean")}
    alphas, rates = (1, 2, 3, 4, 6, 8), (0.01, 0.02, 0.05, 0.1, 0.2)
    by_alpha = sweep([published(1.0, alpha, 0.1) for alpha in alphas], **size)
    by_rate = sweep([published(1.0, 3, rate) for rate in rates], **size)
    figure = pictures.sweeps(
        [("α, collisions 0.1", alphas, by_alpha), ("collision probability k/s, α = 3", rates, by_rate)],
        {"walk": "the paper's walk", "mean": "the same bits, read by dpsketch"},
    )
    run.figure("sweeps", figure, "Mean absolute error against α, and against the size of the table")
    run.number("best_alpha", alphas[int(np.argmin(by_alpha["walk"]))])
    run.number("alpha_2", by_alpha["walk"][1] / by_alpha["walk"][2])
    run.number("wide_table", by_rate["walk"][0], ours=by_rate["mean"][0])


def _composite(run: Run) -> None:
    run.section(
        "The composite, by value",
        "d = 2³² possible keys, ε = 1 in all. As published, half of ε goes to a threshold and half to ALP, collisions "
        "0.1; the default gives a quarter to the threshold, which helps small values, costs large ones, and takes more "
        "space. The Laplace mechanism on all 2³² entries is what cannot be stored. A threshold alone loses every value "
        "below its cutoff: ALP pays for those, at the price of noise on the large ones.",
    )
    probes = 1_000 if run.quick else 10_000
    halves = 0.5, published(0.5, 3, 0.1).epsilon  # what they cost one record
    paper = {"threshold_share": halves[0] / sum(halves), "alpha": 3, "collisions": -math.log(0.9)}
    exact = {"threshold_share": 0.5, "alpha": 3, "collisions": -math.log(0.9) * 11 / 9}  # 11 columns instead of 9
    found = {
        "as published": composite_errors(VALUES, "walk", probes=probes, epsilon=sum(halves), **paper),
        "threshold alone": (rivals.threshold_errors(VALUES, epsilon=1.0, domain=DOMAIN), None),
        "Laplace on every entry": ([rivals.discrete_laplace_error(1.0)] * len(VALUES), None),
        "dpsketch, published split and space": composite_errors(VALUES, "mean", probes=probes, epsilon=1.0, **exact),
        "dpsketch's default": composite_errors(VALUES, "mean", probes=probes, epsilon=1.0),
    }
    run.figure("composite", pictures.by_value(VALUES, found), "Mean absolute error by the value of a key, ε = 1")
    rows = [[name, *errors, bits and round(bits)] for name, (errors, bits) in found.items()]
    run.table(["release", *(f"value {value}" for value in VALUES), "bits a key"], rows)
    for value, one, ours in zip(VALUES, found["as published"][0], found["dpsketch's default"][0], strict=True):
        if value in (0, 30, 300):
            run.number(f"composite_{value}", one, ours=ours)


def _opendp(run: Run) -> None:
    count = 1_000 if run.quick else 10_000
    run.section(
        "Beside OpenDP",
        f"{count:,} keys out of 2³² with values uniform in [0, 100], ε = 1, all of it for ALP; each library with its "
        "defaults. OpenDP draws its own noise, so its line differs a little from run to run.",
    )
    rng = np.random.default_rng(6)
    keys, values = rng.choice(2**32, count, replace=False), rng.integers(0, 101, count)
    ours = bounded_errors(keys, values, top=100, epsilon=1.0)
    rows = [[f"dpsketch, {READ_BY[name]}", *summary(errors)] for name, errors in ours.items()]
    try:
        theirs = summary(rivals.opendp_errors(keys, values, top=100, epsilon=1.0))
        run.number("opendp", theirs[0], ours=rows[0][1])
        rows.append(["OpenDP", *theirs])
    except ImportError:
        run.leave_out("the comparison with OpenDP", "the extra dpsketch[papers] is not installed")
    run.table(["library, estimator", *MEASURES], rows)
