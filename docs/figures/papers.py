"""Draw what papers claim against what is true: ``python docs/figures/papers.py`` (the essay's pictures and tables)."""

from __future__ import annotations

import math
import random
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pages import table, write_table

from dpsketch import local
from dpsketch.accounting import compose
from dpsketch.accounting.gaussian import gaussian_delta
from dpsketch.privacy import MomentCost
from dpsketch.sketches.moment import as_published as paper

HERE = Path(__file__).parent
PAGE = HERE.parent / "explanation" / "papers.md"
CLAIMED, TRUE, OURS = "#8a8a8a", "#d1495b", "#1f77b4"
RECORDS, KEYS, MOST, SIZE, RATE = 2**15, 2**20, 16, 50, 0.02
PEOPLE = 100


def picture(across: str, up: str, *, log: str = "") -> tuple[Figure, Axes]:
    """Return a figure of the essay's size, and its axes."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=across, ylabel=up)
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    return figure, axes


def save(figure: Figure, axes: Axes, name: str, place: str = "best") -> None:
    """Write a picture beside this file."""
    axes.legend(frameon=False, fontsize=9, loc=place)
    figure.savefig(HERE / f"papers-{name}.png", dpi=130)


def orders() -> None:
    """PrivSketch: how many sets are read off the ordering matrix, which ε-local privacy would not allow."""
    protocol, draw = local.PrivSketchAsPublished(epsilon=1.0), random.Random(1)
    sizes, domains = (1, 2, 5, 10, 20), (1_000, 10_000, 100_000)
    found = {}
    for domain in domains:
        for size in sizes:
            secret = [sorted(draw.sample(range(domain), size)) for _ in range(PEOPLE)]
            guessed = local.recover_sets(protocol, protocol.report(secret), range(domain))
            found[domain, size] = sum(a == sorted(b) for a, b in zip(secret, guessed, strict=True)) / PEOPLE
    figure, axes = picture("items that a person holds", "sets recovered whole, of 100 people")
    for domain, colour in zip(domains, ("#f2a6b0", "#e0717f", TRUE), strict=True):
        axes.plot(sizes, [found[domain, size] for size in sizes], "o-", color=colour, label=f"of {domain:,} items")
    axes.plot(
        sizes, [math.e / (math.e + 999)] * len(sizes), "--", color=CLAIMED, label="at most, were it 1-locally private"
    )
    axes.set_xticks(sizes, map(str, sizes))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    save(figure, axes, "order", "lower left")
    rows = [[f"{domain:,}", *(f"{found[domain, size]:.0%}" for size in sizes)] for domain in domains]
    write_table(PAGE, "orders: docs/figures/papers.py", table(["possible items", *(f"{n} held" for n in sizes)], rows))


def sampling() -> None:
    """Moments, Theorem 4: ε as claimed, as one pair forces it, and without sampling."""
    exponents = [0.1 + 0.05 * step for step in range(19)]

    def claimed(p: float) -> float:
        ratio = paper.theorem_1_ratio(p, records=RECORDS, keys=KEYS, max_weight=MOST)
        return paper.theorem_4_epsilon(p, size=SIZE, rate=RATE, ratio=ratio)

    def forced(p: float) -> float:
        return paper.epsilon_of_pair(p, size=SIZE, rate=RATE, records=RECORDS, max_weight=MOST)

    def ours(p: float) -> float:
        return float(compose([MomentCost(p, SIZE, 1 + (MOST / RECORDS) ** p)], delta=1e-6))

    figure, axes = picture("p", "ε of 50 coordinates", log="y")
    axes.plot(exponents, [claimed(p) for p in exponents], "--", color=CLAIMED, label="Theorem 4 claims")
    axes.plot(exponents, [forced(p) for p in exponents], "-", color=TRUE, label="one pair of streams forces at least")
    table_of = (0.25, 0.5, 0.75, 1.0)
    exact = {p: ours(p) for p in table_of}
    axes.plot(table_of, exact.values(), "o", color=OURS, label="dpsketch: no sampling, exact, δ = 10⁻⁶")
    save(figure, axes, "sampling")
    rows = [[p, f"{claimed(p):.3g}", f"{forced(p):.3g}", f"{exact[p]:.3g}"] for p in table_of]
    head = ["p", "claimed", "forced by one pair", "without sampling, δ = 10⁻⁶"]
    write_table(PAGE, "sampling: docs/figures/papers.py", table(head, rows))


def shares() -> None:
    """Moments, equation (4): what sampling leaves of a moment, by how often a key occurs."""
    counts = [round(10 ** (step / 8)) for step in range(25)]
    figure, axes = picture("records of a key", "kept, of what the paper assumes", log="x")
    axes.axhline(1, linestyle="--", color=CLAIMED, label="equation (4)")
    for p, colour in ((0.25, TRUE), (0.5, "#e0717f"), (0.75, "#f2a6b0")):
        axes.plot(
            counts, [paper.subsampled_share(p, count=n, rate=RATE) for n in counts], color=colour, label=f"p = {p}"
        )
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    save(figure, axes, "share")


def deletions() -> None:
    """Moments, Theorem 6: how far neighbours may lie apart, by the number of records."""
    lengths = [2**step for step in range(6, 21)]
    figure, axes = picture("records", "ratio of F₁ between neighbours", log="xy")
    claimed = [paper.theorem_6_ratio(1.0, records=n, max_weight=MOST) for n in lengths]
    axes.plot(lengths, claimed, "--", color=CLAIMED, label="Theorem 6 claims at most")
    axes.plot(lengths, [33.0] * len(lengths), color=TRUE, label="17 left on one key, then +16 or −16")
    save(figure, axes, "deletions")


def scales() -> None:
    """RACE's public code: the ε of its noise, by the number of points, where it says 1."""
    points = [10**step for step in range(1, 7)]
    figure, axes = picture("points in the data", "ε of the released table", log="xy")
    axes.plot(points, [1.0] * len(points), "--", color=CLAIMED, label="stated")
    axes.plot(points, points, color=TRUE, label="of noise with scale R/(Nε) on raw counts")
    save(figure, axes, "scale")


def gaussians() -> None:
    """Return how far the textbook's Gaussian noise passes its δ, by ε."""
    delta = 1e-6
    budgets = [10 ** (step / 20) for step in range(-20, 23)]

    def passed(epsilon: float) -> float:
        return gaussian_delta(epsilon, epsilon / math.sqrt(2 * math.log(1.25 / delta))) / delta

    figure, axes = picture("ε", "true δ over the δ asked (10⁻⁶)", log="xy")
    axes.axhline(1, linestyle="--", color=CLAIMED, label="as asked")
    axes.plot(budgets, [passed(epsilon) for epsilon in budgets], color=TRUE, label="σ = √(2 ln(1.25/δ))/ε")
    save(figure, axes, "gaussian")
    rows = [[epsilon, f"{passed(epsilon):.2g}"] for epsilon in (0.1, 1, 4, 8, 10, 12)]
    write_table(PAGE, "gaussians: docs/figures/papers.py", table(["ε", "true δ over the δ asked"], rows))


if __name__ == "__main__":
    orders()
    sampling()
    shares()
    deletions()
    scales()
    gaussians()
