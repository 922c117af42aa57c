"""The only door to noise: paid before it is drawn, drawn once, and stated by what was drawn."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files, sketches
from dpsketch.core.account import Account
from dpsketch.errors import BudgetExceeded, FileRefused, ReleaseRefused
from dpsketch.noise import DiscreteLaplace, RoundedGaussian, seeded_noise_for_tests_only
from dpsketch.privacy import ApproximateCost, Budget, Cost, GaussianCost, PureCost
from dpsketch.sketches.permit import Calibration, Part, Permit, Share, additive, obtain
from dpsketch.sketches.specs import Sensitivity

BOUND = Sensitivity(3, 2.0)
UNIT = dps.per_record()
TABLE = np.zeros((2, 3), np.int64)
BUDGETS = [Budget(1.0, 1e-6), Budget(1.0, 0), Budget(rho=0.1)]


def permit(calibration: Calibration | None = None) -> Permit:
    return obtain(calibration or additive(BUDGETS[0], Share("a", BOUND)), UNIT, Account(), note="a test")


class Coin:
    """A mechanism that is no additive noise."""

    words = "a coin"

    def __init__(self, *costs: Cost) -> None:
        self.costs = costs

    def draw(self, *data: Any) -> Any:
        return data


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_parts_share_a_budget_and_are_drawn_with_their_own_law(budget: Budget) -> None:
    shares = [Share("a", BOUND, 0.25), Share("b", Sensitivity(5, 5.0), 0.125, copies=2), Share("c", BOUND, 0.5)]
    found = permit(additive(budget, *shares, words="three parts"))
    with seeded_noise_for_tests_only(1):
        for share in shares:
            law = found.calibration.law(share.name)
            noise = found.add_noise(np.zeros(20_000, np.int64), share.name)
            assert np.var(noise) == pytest.approx(law.variance, rel=0.1)
    promise = found.guarantee()
    assert (promise.epsilon, promise.rho) == pytest.approx((found.calibration.epsilon, budget.rho))
    assert promise.mechanism == "three parts"
    costs = [cost for part in found.calibration.parts for cost in part.costs]
    (charged,) = found.calibration.costs
    if isinstance(charged, GaussianCost):
        assert sum(cost.mu**2 for cost in costs) == pytest.approx(charged.mu**2, rel=1e-9)
    else:
        assert sum(cost.epsilon for cost in costs) == pytest.approx(charged.epsilon, rel=1e-9)


def test_a_part_is_drawn_once() -> None:
    found = permit()
    found.add_noise(TABLE, "a")
    with pytest.raises(ReleaseRefused, match="drawn before"):
        found.add_noise(TABLE, "a")
    with pytest.raises(ReleaseRefused, match="drawn before"):
        found.add_noise(TABLE, "a", "another piece")
    with pytest.raises(ReleaseRefused, match="no part that was declared"):
        found.add_noise(TABLE, "b")


def test_a_part_in_pieces_is_drawn_once_a_piece() -> None:
    found = permit(additive(BUDGETS[0], Share("days", BOUND, pieces=2)))
    found.add_noise(TABLE, "days", 1)
    with pytest.raises(ReleaseRefused, match="drawn before"):
        found.add_noise(TABLE, "days", 1)
    found.add_noise(TABLE, "days", 2)
    with pytest.raises(ReleaseRefused, match="drawn before"):
        found.add_noise(TABLE, "days", 3)


def test_nothing_is_promised_before_every_part_is_drawn() -> None:
    found = permit(additive(BUDGETS[0], Share("a", BOUND, 0.5), Share("b", BOUND, 0.5)))
    found.add_noise(TABLE, "a")
    with pytest.raises(ReleaseRefused, match="no noise was drawn"):
        found.guarantee()
    found.add_noise(TABLE, "b")
    assert found.guarantee().holds


def test_a_draw_from_a_seed_is_never_a_guarantee() -> None:
    found = permit()
    with seeded_noise_for_tests_only(1):
        found.add_noise(TABLE, "a")
    assert not found.guarantee(caveat="it was counted").holds


def test_an_interrupted_draw_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    found = permit()
    with monkeypatch.context() as patch:
        patch.setattr(RoundedGaussian, "sample", interrupted)
        with pytest.raises(KeyboardInterrupt):
            found.add_noise(TABLE, "a")
    with pytest.raises(ReleaseRefused, match="drawn before"):
        found.add_noise(TABLE, "a")


@pytest.mark.parametrize(
    ("parts", "costs"),
    [
        ([Part("a", RoundedGaussian(1.0), BOUND)], (GaussianCost(1.99),)),
        ([Part("a", RoundedGaussian(2.0), BOUND)] * 2, (GaussianCost(1.4),)),
        ([Part("a", RoundedGaussian(2.0), BOUND, copies=2)], (GaussianCost(1.4),)),
        ([Part("a", DiscreteLaplace(1.0, 2), BOUND)], (PureCost(1.4),)),
        ([Part("a", DiscreteLaplace(1.0, 3), BOUND)], (GaussianCost(9.0),)),
        ([Part("a", Coin(PureCost(0.5))), Part("b", Coin(PureCost(0.6)))], (PureCost(1.0),)),
        ([Part("a", Coin(ApproximateCost(0.5, 1e-6)))], (ApproximateCost(0.5, 1e-7),)),
        ([Part("a", Coin(ApproximateCost(0.5, 1e-6)))] * 2, (ApproximateCost(0.5, 1e-6),)),
    ],
)
def test_parts_that_cost_more_than_is_charged_are_refused(parts: list[Part], costs: tuple[Cost, ...]) -> None:
    named = tuple(Part(str(i), part.law, part.bound, part.copies) for i, part in enumerate(parts))
    calibration = Calibration(named, costs, 1.0, 1e-6, None, "too little")
    with pytest.raises(ReleaseRefused, match="cost more"):
        obtain(calibration, UNIT, Account(), note="a test")


@pytest.mark.parametrize("stated", [{"epsilon": 1 / 3}, {"delta": 1e-7}, {"rho": 1e-3}])
def test_no_more_is_promised_than_was_drawn(stated: dict[str, float]) -> None:
    calibration = replace(additive(BUDGETS[0], Share("a", BOUND)), **stated)
    with pytest.raises(ReleaseRefused, match="promise more"):
        obtain(calibration, UNIT, Account(), note="a test")


def test_a_unit_that_moves_one_part_only_pays_for_the_dearest() -> None:
    parts = tuple(Part(name, RoundedGaussian(2.0), BOUND) for name in "ab")
    assert Calibration(parts, (GaussianCost(1.0),), 1.0, 1e-6, None, "either", either=True).pays_for(parts)
    assert not Calibration(parts, (GaussianCost(1.0),), 1.0, 1e-6, None, "both").pays_for(parts)


def test_nothing_is_drawn_that_the_ledger_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = dps.Ledger(f"sqlite:///{tmp_path}/budget.db")
    ledger.create("web", epsilon=0.5, delta=1e-6, unit=UNIT)
    monkeypatch.setattr(RoundedGaussian, "sample", lambda *_: pytest.fail("noise was drawn before it was paid for"))
    with pytest.raises(BudgetExceeded):
        obtain(additive(BUDGETS[0], Share("a", BOUND)), UNIT, Account(ledger, "web"), note="a test")


# Who may draw: a law's own `draw`, a permit, and those named here with their reason.
DRAWN_ELSEWHERE = {
    "moment/secret.py": "a secret is drawn before its charge, and used in no release before it",
    "density/sketch.py": "which of the rows a record goes to, where it goes to one",
    "countsketch/prediction.py": "a rehearsal on a public guess, of which nothing is released",
    "countsketch/parties.py": "the random name of a party",
    "distinct/mergeable.py": "the random name of a bitmap",
    "continual/folder.py": "the random name that a stream's payment is bound to",
    "continual/names.py": "the random name of a stream",
    "continual/visits.py": "the key of the hash that tells users apart, of which nothing is released",
    "partials.py": "the random name of a partial",
    "histogram/keytable.py": "the secret of a hash, of which nothing is released",
    "histogram/content.py": "which of a user's keys count, where there are too many",
    "bounds.py": "in which cell a key lies, for the spread of keys, which gets its noise from a permit",
    "moment/as_published.py": "the published mechanism's coins, which promise nothing",
}
SOURCES = {"random_words", "random_below", "random_bytes", "random_id"}


def going_around(code: str, name: str) -> list[str]:
    """The places in a module that draw, and neither are a law's own draw nor have a reason of their own."""
    found: list[str] = []

    def visit(node: ast.AST, drawing: bool) -> None:
        if isinstance(node, ast.FunctionDef):
            drawing = drawing or node.name == "draw"
        if isinstance(node, ast.Call):
            called = node.func
            drawn = isinstance(called, ast.Attribute) and called.attr in {"sample", *SOURCES}
            drawn |= isinstance(called, ast.Name) and called.id in SOURCES
            if drawn and not drawing and name not in DRAWN_ELSEWHERE:
                found.append(f"{name}:{node.lineno}")
            if isinstance(called, ast.Attribute) and called.attr == "draw" and not drawing:
                owner = called.value
                if not ast.unparse(owner).endswith(("permit", "Secret")):
                    found.append(f"{name}:{node.lineno}")
        for child in ast.iter_child_nodes(node):
            visit(child, drawing)

    visit(ast.parse(code), False)
    return found


# Helpers of a law's draw.
PART_OF_A_DRAW = {
    "histogram/entries.py", "quantiles/sampler.py", "sparse/threshold.py", "permit.py",
}  # fmt: skip


def test_nobody_in_the_sketches_goes_around_the_permit() -> None:
    root = Path(sketches.__file__).parent
    modules = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    around = [
        place for name, code in modules.items() if name not in PART_OF_A_DRAW for place in going_around(code, name)
    ]
    assert not around
    assert set(DRAWN_ELSEWHERE) <= modules.keys()


@pytest.mark.parametrize(
    "code",
    [
        "def release(self):\n    return self.table + self.noise.sample(9)",
        "def release(self):\n    return random_words(3)",
        "def release(self):\n    return noise.random_bytes(3)",
        "def release(self):\n    return mechanism.threshold.draw(positions)",
    ],
)
def test_the_check_sees_who_does(code: str) -> None:
    assert going_around(code, "counts/sketch.py")


@pytest.mark.parametrize("days", [None, 4])
def test_a_state_that_promises_more_than_its_noise_is_refused(days: int | None) -> None:
    shape = {"rows": 3, "width": 8, "unit": UNIT, "key_type": "int", "epsilon": 8.0, "delta": 1e-6}
    sketch = dps.PanPrivateCountSketch(**shape) if days is None else dps.ContinualCountSketch(days=days, **shape)
    document = files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True)
    receipt = document.header["receipt"]
    asked = {**receipt["asked"], "epsilon": 0.01}
    forged = replace(document, header={**document.header, "receipt": {**receipt, "asked": asked}})
    with pytest.raises(FileRefused):
        type(sketch).from_document(forged)
