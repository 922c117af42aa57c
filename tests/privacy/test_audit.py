"""The audit itself: it keeps its confidence, finds nothing in what is shipped, and catches every known mistake.

Noise is seeded, so that a run is the same every time. Each bound is certified at 1 − 1e-6; whatever the seed, a false
alarm in all audits of this file together has a probability below 1e-4, and with these seeds there is none.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpsketch import noise
from dpsketch.audit import bounds
from dpsketch.audit.bounds import lower_bound_from_outputs
from dpsketch.audit.findings import Finding, Mechanism
from dpsketch.audit.sampled import PUBLISHED, SHIPPED
from dpsketch.local import PROTOCOLS

CONFIDENCE = 1 - 1e-6
# One mechanism of each law: Gaussian, Laplace, flipped bits, reports. ``dpsketch audit`` goes through all others.
QUICK = {"counts-gaussian": 400, "counts-laplace": 400, "distinct-mergeable": 200, "svim-direct": 400}


def audited(mechanism: Mechanism, trials: int, seed: int = 3) -> Finding:
    if mechanism.name.startswith(("local", "svim")):
        trials //= 4  # each trial is eight reports
    with noise.seeded_noise_for_tests_only(seed):
        return mechanism.audit(trials, CONFIDENCE)


@pytest.mark.parametrize("name", QUICK)
def test_what_is_shipped_holds(name: str) -> None:
    found = audited(SHIPPED[name](), QUICK[name])
    assert found.name == name
    assert found.shipped
    assert found.verdict == "holds"
    assert 0 < found.claim.epsilon < 3


@pytest.mark.parametrize(
    "name",
    [name if name != "moments-as-published" else pytest.param(name, marks=pytest.mark.full) for name in PUBLISHED],
)
def test_what_was_published_is_found_violated(name: str) -> None:
    found = audited(PUBLISHED[name](), 3000 if name == "moments-as-published" else 600)
    assert not found.shipped
    assert found.verdict == "violated"


def test_every_local_protocol_that_claims_privacy_is_audited() -> None:
    assert {f"local-{name}" for name in PROTOCOLS} - set(SHIPPED) == {"local-privsketch-as-published"}


class TestDistinguishers:
    """Each finds what it is made for; the bound on two equal laws stays 0 whatever is learned."""

    rng = np.random.default_rng(8)

    def bound(self, outputs: np.ndarray, others: np.ndarray, **which: object) -> float:
        found, _ = lower_bound_from_outputs(outputs, others, which, confidence=CONFIDENCE)  # type: ignore[arg-type]
        return found.epsilon

    @pytest.mark.parametrize("learner", ["linear_discriminant", "loudest", "loudest_pair", "frequent_outcomes"])
    def test_nothing_is_learned_from_nothing(self, learner: str) -> None:
        outputs = self.rng.integers(0, 3, (2, 2000, 40)).astype(float)
        assert self.bound(outputs[0], outputs[1], it=getattr(bounds, learner)) == 0

    def test_confidence_is_kept(self) -> None:
        """Of 300 audits at 90% of a randomised response of ε = 1, at most 60 pass 1 (rate below 1e-6)."""
        keep = math.e / (1 + math.e)
        wrong = 0
        for _ in range(300):
            bits = (self.rng.random((2, 1000, 1)) < keep).astype(float)
            bits[1] = 1 - bits[1]
            found, _ = lower_bound_from_outputs(
                bits[0], bits[1], {"outcomes": bounds.frequent_outcomes}, confidence=0.9
            )
            wrong += found.epsilon > 1
        assert wrong <= 60
