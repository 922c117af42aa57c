"""Exact noise against OpenDP's exact samplers: one core, same scale, same run.

OpenDP's Gaussian is the discrete one and ours the rounded one: each library's own exact integer Gaussian. Both take
their bits from a cryptographic source. The vectors are made outside the timed call.
"""

from __future__ import annotations

import time
from typing import Any, assert_never

from benchmarks.peers import run_peer
from dpsketch.noise import DiscreteLaplace, Noise, RoundedGaussian

SAMPLES = 4_000_000
PEER_SAMPLES = 100_000
ROUNDS = 3

PEER = """
import json, time
import opendp.prelude as dp
dp.enable_features("contrib")
mechanism = dp.m.make_{law}(dp.vector_domain(dp.atom_domain(T="i64")), dp.{distance}(T="i64"), scale={scale!r})
zeros = [0] * {samples}
mechanism(zeros[:1000])
start = time.perf_counter()
mechanism(zeros)
print(json.dumps({samples} / (time.perf_counter() - start)))
"""

LAWS: list[Noise] = [
    *(RoundedGaussian(sigma) for sigma in (3.0, 9.45, 1000.0)),
    *(DiscreteLaplace(1.0, sensitivity) for sensitivity in (1, 7, 1000)),
]


def peer_code(law: Noise) -> str:
    match law:
        case RoundedGaussian(sigma):
            return PEER.format(law="gaussian", distance="l2_distance", scale=sigma, samples=PEER_SAMPLES)
        case DiscreteLaplace(epsilon, sensitivity):
            return PEER.format(law="laplace", distance="l1_distance", scale=sensitivity / epsilon, samples=PEER_SAMPLES)
        case _:
            assert_never(law)


def run() -> list[dict[str, Any]]:
    """Return a row a law, with samples a second of ours and theirs; rounds alternate and the best of each counts."""
    rows = []
    for law in LAWS:
        law.sample(SAMPLES // 10)
        ours = theirs = 0.0
        for _ in range(ROUNDS):
            theirs = max(theirs, run_peer(peer_code(law)))
            start = time.perf_counter()
            law.sample(SAMPLES)
            ours = max(ours, SAMPLES / (time.perf_counter() - start))
        row = {"name": law.words, "ours": ours, "theirs": theirs, "ratio": ours / theirs, "unit": "samples/s"}
        rows.append(row | {"reach": 50})
    return rows


if __name__ == "__main__":
    for row in run():
        print(f"{row['name']:40} {row['ours']:.3g} against {row['theirs']:.3g} {row['unit']}: {row['ratio']:.0f} times")
