"""Draw the error of one table against ε, for three ways of reading it: ``python docs/figures/error_by_epsilon.py``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from pages import write_table

import dpsketch as dps

KEYS, RECORDS, SKEW = 20_000, 500_000, 1.1
ROWS, WIDTH = 7, 4096
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
COLOURS = {"median": "#8a8a8a", "robust": "#1f77b4", "decode": "#d1495b"}


def root_mean_square(errors: np.ndarray) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(errors**2)))


def measure() -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the errors over all keys: by estimator and ε, and of the same tables with (almost) no noise."""
    shares = np.arange(1, KEYS + 1.0) ** -SKEW
    counts = np.random.default_rng(1).multinomial(RECORDS, shares / shares.sum())
    keys = np.arange(KEYS)
    sketch = dps.CountSketch(rows=ROWS, width=WIDTH, unit=dps.per_record())
    sketch.update(keys, counts=counts)

    def errors(epsilon: float) -> dict[str, float]:
        private = sketch.release(epsilon=epsilon, delta=1e-6)
        return {
            "median": root_mean_square(private.estimate(keys, estimator="median").value - counts),
            "robust": root_mean_square(private.estimate(keys).value - counts),
            "decode": root_mean_square(private.decode(keys).value - counts),
        }

    found: dict[str, list[float]] = {name: [] for name in COLOURS}
    for epsilon in EPSILONS:
        for name, error in errors(epsilon).items():
            found[name].append(error)
    return found, errors(1000.0)


def draw(found: dict[str, list[float]], without: dict[str, float], path: Path) -> None:
    """Draw the lines, and the errors without noise as dotted ones."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    words = {
        "median": "median of rows (the paper's)",
        "robust": "estimate() (robust)",
        "decode": "decode() (all keys at once)",
    }
    for name, colour in COLOURS.items():
        axes.plot(EPSILONS, found[name], "o-", color=colour, label=words[name])
        if without[name] > 1:
            axes.axhline(without[name], color=colour, linestyle=":", linewidth=1)
    axes.plot([], [], ":", color="black", label="the same without privacy (ε = 1000)")
    axes.set(
        xscale="log", yscale="log", xlabel="ε (δ = 10⁻⁶, one record)", ylabel="error of a count (root mean square)"
    )
    axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    axes.set_yticks([2, 5, 10, 20, 50], ["2", "5", "10", "20", "50"])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)


def caption(found: dict[str, list[float]]) -> str:
    """Return what is written below the picture."""
    at_one = {name: errors[EPSILONS.index(1.0)] for name, errors in found.items()}
    spec = dps.CountSketch(rows=ROWS, width=WIDTH, unit=dps.per_record()).spec
    alone = spec.preview(epsilon=1.0, delta=1e-6).noise_scale / ROWS**0.5
    return (
        f"*How accurate: root mean square error over all keys of one release of {RECORDS:,} records (Zipf {SKEW}, "
        f"{ROWS}×{WIDTH} counters). At ε = 1 joint decoding has an error of {at_one['decode']:.1f} records, where the "
        f"paper's median has {at_one['median']:.1f}; the noise alone, had no two keys met, is {alone:.1f}.*\n"
    )


def main() -> None:
    """Measure, draw, and write the caption."""
    here = Path(__file__).parent
    found, without = measure()
    draw(found, without, here / "error-by-epsilon.png")
    write_table(here.parent.parent / "README.md", "accuracy: docs/figures/error_by_epsilon.py", caption(found))


if __name__ == "__main__":
    main()
