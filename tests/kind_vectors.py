"""One file of every kind, as the first version that had it wrote it: `python tests/kind_vectors.py` adds missing ones.

A release beside its answers, and a sensitive sketch beside what it holds. Later versions must read each, answer alike,
and write it again to the byte. The kinds, and their records, are those of ``sensitive``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import dpsketch as dps
from dpsketch import files
from dpsketch.noise import seeded_noise_for_tests_only
from sensitive import ROWS

FOLDER = Path(__file__).parent / "vectors" / "kinds"

POINTS = [[0.5, 1.0], [1.5, 1.0], [0.25, 3.0], [2.0, 2.0]]


def answers(release: Any) -> dict[str, Any]:
    """What a release says, by every question that it takes without a list of keys, and about a few keys."""
    found: dict[str, Any] = {"epsilon": release.guarantee.epsilon, "words": str(release.guarantee)}
    if hasattr(release, "spec"):
        found["spec"] = release.spec.to_json() if hasattr(release.spec, "to_json") else None
    if isinstance(release, dps.PrivateVoteHistogram | dps.PrivateHistogram):
        found["keys"] = [[str(row.key), row.value, row.low, row.high] for row in release.top(10)]
        if isinstance(release, dps.PrivateVoteHistogram):
            found["counts of"] = release.counts
        else:
            found["others"] = None if release.others is None else release.others.to_json()
    elif isinstance(release, dps.PrivateTable):
        # Quantiles that are drawn in listed rows alone are NaN in the last one.
        others = {name: each if each == each else None for name, each in release.others.items()}
        found |= {"rows": release.to_json(), "others of": others, "bounds": release.facts()["bounds"]}
    elif isinstance(release, dps.PrivateDensity):
        found["estimate"] = release.estimate(POINTS).to_json()
    elif isinstance(release, dps.PrivateRanges):
        found["range"] = release.range(0, 5).to_json()
        found["quantiles"] = [[q.value, q.low, q.high] for q in release.quantiles([0.5, 0.9])]
    elif isinstance(release, dps.PrivateQuantiles):
        found["quantiles"] = [[q.value, q.low, q.high, q.rank_error] for q in release.quantiles()]
    elif isinstance(release, dps.PrivateMomentProfile):
        found["moments"] = [moment.value for moment in release]
    elif isinstance(release, dps.PrivateSeries):
        found["curve"] = release.curve(1, window=1).to_json()
        found["change"] = release.change(1, (2, 2), (1, 1)).to_json()
    elif hasattr(release, "interval"):
        found["statement"] = [release.value, *release.interval(0.95)]
    elif hasattr(release, "estimate"):
        keys = ["a", "c"] if hasattr(release, "protocol") else [1, 2, 7]
        found["estimate"] = release.estimate(keys).to_json()
    return found


def plain(value: Any) -> Any:
    """Write values as JSON holds them: floats to 12 digits, since their last bits are not promised."""
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items() if key != "counts"}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value


def write() -> None:
    """Write the vectors of kinds that have none."""
    for row in ROWS:
        with seeded_noise_for_tests_only(3):
            sketch = row.filled(0, 1, 2)
            if (FOLDER / f"{sketch.kind}.sketch").exists():
                continue
            (FOLDER / f"{sketch.kind}.sketch").write_bytes(sketch.to_sensitive_bytes())
            release = row.publish(sketch)
        (FOLDER / f"{sketch.kind}.dps").write_bytes(files.encode(release.to_document()))
        told = json.dumps(plain(answers(release)), ensure_ascii=False, indent=1)
        (FOLDER / f"{sketch.kind}.json").write_text(told + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
