"""A new kind is its own classes and one row: everything else finds it there.

The kind of this test counts the records whose key is a multiple of ``width``, and releases that one number.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pytest

import dpsketch as dps
from dpsketch import files, plan, plots
from dpsketch.bounding import CountedUsers
from dpsketch.cli import main
from dpsketch.errors import InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.kinds import KINDS, Kind, load, load_sensitive
from dpsketch.ledger import Charge
from dpsketch.noise import Noise, noise_from_json
from dpsketch.plan import Amount, Guess, Proposal
from dpsketch.privacy import Budget, Guarantee, Unit
from dpsketch.release import Release, refuse_keys, statement
from dpsketch.results import Estimates
from dpsketch.server.releases import Releases
from dpsketch.server.storage import Storage
from dpsketch.sketches.base import Accumulator
from dpsketch.sketches.documents import read_charge, read_guarantee, release_header
from dpsketch.sketches.kinds import Option
from dpsketch.sketches.permit import Calibration, ReleasePreview, Share, additive, obtain
from dpsketch.sketches.specs import Sensitivity

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NUMBER = "the number of multiples"


@dataclass(frozen=True, slots=True)
class MultiplesSpec:
    unit: Unit
    width: int = 2
    key_type: KeyType | None = "int"

    @property
    def memory(self) -> int:
        return 8

    def calibrate(self, budget: Budget) -> Calibration:
        return additive(budget, Share(NUMBER, Sensitivity(1, 1.0)))

    def preview(
        self, *, epsilon: float | None = None, delta: float | None = None, rho: float | None = None
    ) -> ReleasePreview:
        calibrated = self.calibrate(Budget(epsilon, delta, rho))
        scale = float(calibrated.law(NUMBER).variance ** 0.5)
        return ReleasePreview(calibrated.guarantee(self.unit), scale, scale)

    def to_json(self) -> dict[str, Any]:
        return {"unit": self.unit.to_json(), "width": self.width, "key_type": self.key_type}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        return cls(Unit.from_json(value["unit"]), value["width"], value["key_type"])


class Multiples(Accumulator[MultiplesSpec]):
    kind: ClassVar[str] = "multiples"

    def _start(self, spec: MultiplesSpec) -> None:
        self._spec, self._number, self._skipped, self._counted = spec, 0, 0, CountedUsers()

    def update(self, keys: Any) -> None:
        number = int(np.count_nonzero(np.asarray(keys) % self._spec.width == 0))
        self._begin_change()
        self._number += number

    def _absorb(self, other: Self) -> None:
        self._number += other._number

    def release(
        self, *, ledger: Any = None, dataset: str | None = None, part: str | None = None, **budget: float | None
    ) -> PrivateMultiples:
        calibrated = self._spec.calibrate(Budget(**budget))
        permit = obtain(calibrated, self._spec.unit, self._account(ledger, dataset, part), note="multiples")
        noisy = int(permit.add_noise(np.array([self._number]), NUMBER)[0])
        return PrivateMultiples(self._spec, noisy, calibrated.law(NUMBER), permit.guarantee(), permit.charge)

    def _to_document(self) -> files.Document:
        header = {"spec": self._spec.to_json(), "number": self._number}
        return files.Document(self.kind, True, header, {})

    @classmethod
    def _from_document(cls, document: files.Document) -> Self:
        sketch = cls.from_spec(MultiplesSpec.from_json(document.header["spec"]))
        sketch._number = document.header["number"]
        return sketch


@dataclass(frozen=True, slots=True, eq=False)
class PrivateMultiples(Release):
    kind: ClassVar[str] = "multiples"

    spec: MultiplesSpec
    number: int
    noise: Noise
    guarantee: Guarantee
    charge: Charge | None = None

    def answer(
        self, asked: Sequence[Any], *, confidence: float, estimator: str | None, key_type: KeyType | None
    ) -> Estimates:
        refuse_keys(asked)
        reach = 3 * self.noise.variance**0.5
        return statement("multiples", self.number, (self.number - reach, self.number + reach), confidence)

    def plot(self) -> Figure:
        return plots.bars(self.answer([], confidence=0.95, estimator=None, key_type=None), "multiples")

    def to_document(self) -> files.Document:
        more = {"number": self.number, "noise": self.noise.to_json()}
        return files.Document(
            self.kind, False, release_header(self.spec.to_json(), self.guarantee, self.charge, **more), {}
        )

    @classmethod
    def from_document(cls, document: files.Document) -> Self:
        spec, noise = MultiplesSpec.from_json(document.header["spec"]), noise_from_json(document.header["noise"])
        return cls(spec, document.header["number"], noise, read_guarantee(document), read_charge(document))


def start(unit: Unit, given: dict[str, Any], *, columns: tuple[str, ...], key_type: KeyType | None) -> Multiples:
    return Multiples.from_spec(MultiplesSpec(unit, **given))


def plan_multiples(amount: Amount, guess: Guess, *, target_error: float | None, memory: int) -> Proposal:
    error = MultiplesSpec(amount.unit).preview(**amount.budget).predicted_error
    return Proposal("multiples", {"width": 2}, amount.budget, error, "the number", 8, 0.0)


@pytest.fixture
def _row(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Kind(
        "multiples",
        "How many keys are multiples?",
        answers=("statement",),
        private_path=f"{__name__}:PrivateMultiples",
        sensitive_path=f"{__name__}:Multiples",
        spec_path=f"{__name__}:MultiplesSpec",
        weighs=False,
        start_path=f"{__name__}:start",
        options=(Option("width", int, "multiples: of what."),),
        plan_path=f"{__name__}:plan_multiples",
    )
    monkeypatch.setitem(KINDS, row.name, row)


pytestmark = pytest.mark.usefixtures("_row")


@pytest.fixture
def released() -> PrivateMultiples:
    sketch = Multiples.from_spec(MultiplesSpec(dps.per_record(), 3))
    sketch.update(range(3000))
    return sketch.release(epsilon=1.0, delta=0)


def _run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["dpsketch", *map(str, words)])
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    shown = capfd.readouterr()
    return int(code), shown.out + shown.err


def test_its_files_are_read(released: PrivateMultiples, tmp_path: Path) -> None:
    released.save(tmp_path / "it.dps")
    again = dps.load(tmp_path / "it.dps")
    assert isinstance(again, PrivateMultiples)
    assert again.number == released.number
    sketch = Multiples.from_spec(MultiplesSpec(dps.per_record(), 3))
    sketch.update([3, 4])
    assert isinstance(load_sensitive(sketch.to_sensitive_bytes()), Multiples)
    assert sketch.to_shared_bytes() == sketch.to_sensitive_bytes()


def test_the_command_line_makes_asks_and_draws_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("n,w\n" + "".join(f"{i},1\n" for i in range(3000)))
    made = ["run", "multiples", "t.csv", "--key", "n", "--epsilon", 1, "--delta", 0, "--no-ledger", "-o", "it.dps"]
    code, said = _run(monkeypatch, capfd, *made, "--width", 3)
    assert code == 0, said
    found = load("it.dps")
    assert isinstance(found, PrivateMultiples)
    assert abs(found.number - 1000) < 100
    code, said = _run(monkeypatch, capfd, "query", "it.dps")
    assert code == 0
    assert "multiples" in said
    code, said = _run(monkeypatch, capfd, "query", "it.dps", "a")
    assert code != 0
    assert "without keys" in said
    code, said = _run(monkeypatch, capfd, "inspect", "it.dps")
    assert code == 0
    assert "How many keys are multiples?" in said
    assert _run(monkeypatch, capfd, "plot", "it.dps", "-o", "it.png")[0] == 0
    assert Path("it.png").stat().st_size > 0
    code, said = _run(monkeypatch, capfd, "top", "it.dps")
    assert code != 0
    assert "no keys to list" in said


def test_the_command_line_builds_merges_and_releases_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text("n,w\n" + "".join(f"{i},1\n" for i in range(3000)))
    build = ["build", "multiples", "t.csv", "--key", "n"]
    assert _run(monkeypatch, capfd, *build, "--width", 3, "-o", "a.sketch")[0] == 0
    assert _run(monkeypatch, capfd, *build, "--like", "a.sketch", "-o", "b.sketch")[0] == 0
    assert _run(monkeypatch, capfd, "merge", "a.sketch", "b.sketch", "-o", "ab.sketch")[0] == 0
    released = ["release", "ab.sketch", "--epsilon", 1, "--delta", 0, "--no-ledger", "-o", "it.dps"]
    assert _run(monkeypatch, capfd, *released)[0] == 0
    found = load("it.dps")
    assert isinstance(found, PrivateMultiples)
    assert abs(found.number - 2000) < 100
    code, said = _run(monkeypatch, capfd, *build, "--rows", 3, "-o", "c.sketch")
    assert code != 0
    assert "--rows does not apply to multiples" in said
    code, said = _run(monkeypatch, capfd, *build, "--weight", "w", "-o", "c.sketch")
    assert code != 0
    assert "no weights" in said


def test_the_service_lists_it(released: PrivateMultiples, tmp_path: Path) -> None:
    released.save(tmp_path / "it.dps")
    storage = Storage(str(tmp_path / "store.db"))
    releases = Releases(storage)
    releases.load((tmp_path,))
    (view,) = releases.views()
    assert view["kind"] == "multiples"
    assert view["questions"] == ["statement"]
    assert releases.get(view["id"]).whole()["spec"]["width"] == 3
    storage.close()


def test_it_is_planned(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    amount, guess = Amount(dps.per_record(), 1.0, 0.0), Guess(1e4, 100, 1.0)
    assert plan.propose("multiples", amount, guess).shape == {"width": 2}
    with pytest.raises(InvalidInput, match="multiples"):
        plan.propose("divisors", amount, guess)
    code, said = _run(monkeypatch, capfd, "plan", "multiples", "--records", 1000, "--epsilon", 1)
    assert code == 0
    assert "dpsketch run multiples" in said
