"""The sentence of a guarantee is true: its numbers bound what an attacker can do, and it speaks of what is hidden."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import dpsketch as dps
from dpsketch import accounting
from dpsketch.privacy import ApproximateCost, Guarantee, PureCost, best_guess, percentage

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "src" / "dpsketch" / "server" / "page"

UNITS = {
    "whether any one record is in the data": dps.per_record(),
    "whether any one user is in the data": dps.per_user(3),
    "which of two things any one record holds": dps.per_record(neighbours="replace"),
    "which of two things any one user holds": dps.per_user(3, neighbours="replace"),
}
BUDGETS = [(0.1, 1e-6), (0.5, 0.3), (1.0, 0.01), (3.0, 1e-9), (40.0, 1e-6)]


def said(words: str) -> float:
    """Read how often the sentence says that a guess is right."""
    [number] = re.findall(r"is right at most ([0-9.]+)% of the time", words)
    return float(number) / 100


def stated(epsilon: float, delta: float, unit: dps.Unit = UNITS["whether any one record is in the data"]) -> Guarantee:
    return Guarantee(epsilon, delta, unit, (ApproximateCost(epsilon, delta),), "some noise")


def success(first: dict[str, float], second: dict[str, float]) -> float:
    """Return how often the best guesser between two laws is right, from even odds."""
    return 0.5 * sum(max(first.get(seen, 0.0), second.get(seen, 0.0)) for seen in {*first, *second})


def leaky_response(truth: str, epsilon: float, delta: float) -> dict[str, float]:
    """Show the truth with probability δ; else pass it through randomised response. (ε, δ)-private, tightly."""
    other = {"yes": "no", "no": "yes"}[truth]
    kept = (1 - delta) / (1 + math.exp(-epsilon))
    return {f"surely {truth}": delta, truth: kept, other: 1 - delta - kept}


@pytest.mark.parametrize(("epsilon", "delta"), [*BUDGETS, (0.2, 0.0), (1.0, 0.0), (7.0, 0.0)])
def test_the_sentence_has_the_least_bound_that_epsilon_and_delta_give(epsilon: float, delta: float) -> None:
    best = success(leaky_response("yes", epsilon, delta), leaky_response("no", epsilon, delta))
    assert best_guess(epsilon, delta) == pytest.approx(best, rel=1e-12)
    number = said(str(stated(epsilon, delta)))
    assert best - 1e-12 <= number <= min(1.0, best + 0.001)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0.7, 2.0, 699.0])
def test_the_factor_of_a_pure_guarantee_is_rounded_up(epsilon: float) -> None:
    words = str(Guarantee(epsilon, 0, dps.per_record(), (PureCost(epsilon),), "noise"))
    [factor] = re.findall(r"changes their odds by a factor of at most ([0-9.e+]+)\. Mech", words)
    assert math.exp(epsilon) <= float(factor) <= 1.01 * math.exp(epsilon)


def test_a_guarantee_without_a_bound_says_so() -> None:
    words = str(Guarantee(math.inf, 0, dps.per_record(), (PureCost(math.inf),), "nothing"))
    assert "right at most 100% of the time" in words
    assert "factor" not in words


@pytest.mark.parametrize("delta", [0, 1e-6])
@pytest.mark.parametrize(("secret", "unit"), UNITS.items())
def test_the_sentence_speaks_of_what_the_relation_hides(secret: str, unit: dps.Unit, delta: float) -> None:
    promise = dps.CountSketch(rows=3, width=16, unit=unit).release(epsilon=1, delta=delta).guarantee
    for words in (str(promise), promise.to_json()["words"], accounting.words(1.0, delta, unit)):
        assert f" {secret} " in words
        assert not any(f" {other} " in words for other in UNITS if other != secret)
    assert ("factor of at most 2.72" in str(promise)) == (delta == 0)


@pytest.mark.skipif(shutil.which("node") is None, reason="the page's numbers: node is not installed")
def test_the_page_has_the_numbers_of_the_sentence(tmp_path: Path) -> None:
    for name in ("guarantee.js", "numbers.js", "dom.js", "api.js"):
        shutil.copy(PAGE / name, tmp_path / name)
    (tmp_path / "package.json").write_text('{"type": "module"}', encoding="utf-8")
    pairs = [*BUDGETS, (0.0, 0.0), (1.0, 0.0), (10.0, 0.0), (30.0, 0.0), (None, 0.0)]
    (tmp_path / "ask.js").write_text(
        'import { bestGuess } from "./guarantee.js"; import { atMost } from "./numbers.js";'
        f"console.log(JSON.stringify({json.dumps(pairs)}.map(([e, d]) => atMost(bestGuess(e, d)))));",
        encoding="utf-8",
    )
    done = subprocess.run(["node", "ask.js"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    ours = [percentage(best_guess(math.inf if e is None else e, d)) for e, d in pairs]
    assert json.loads(done.stdout) == ours
