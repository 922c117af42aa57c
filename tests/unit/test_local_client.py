"""A device counts what it reveals, repeats itself rather than reveal more, and survives a restart."""

from __future__ import annotations

import copy
import pickle
import stat
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from dpsketch import files, local
from dpsketch.errors import BudgetExceeded, InvalidInput, SensitiveData, SpecMismatch

PROTOCOL = local.SubsetHashing(epsilon=1.0, max_items=4, width=4000)  # wide: two draws are hardly ever equal
ID = slice(9, 25)
CONTENT = slice(25, None)


def test_a_report_is_one_that_the_collector_takes() -> None:
    client = local.Client(PROTOCOL, budget=1.0)
    collector = PROTOCOL.collector()
    assert collector.receive([client.report(["a", "b"])]).accepted == 1


def test_a_changed_set_costs_epsilon_and_an_unchanged_one_nothing() -> None:
    client = local.Client(PROTOCOL, budget=2.0)
    first = client.report(["a", "b"])
    again = [client.report(["b", "a", "a"]) for _ in range(20)]
    assert client.spent == 1.0
    assert {message[CONTENT] for message in again} == {first[CONTENT]}
    assert len({message[ID] for message in [first, *again]}) == 21
    other = client.report(["c"])
    assert client.spent == 2.0
    assert client.remaining == 0.0
    assert other[CONTENT] != first[CONTENT]
    assert client.report(["c"])[CONTENT] == other[CONTENT]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("budget", [1.0, 2.0, 4.0])
def test_reports_show_no_more_of_a_sequence_than_its_times_of_change(
    budget: float, restarts: bool, tmp_path: Path
) -> None:
    """A,B,A and A,B,C change at the same times: the same reports are repeats, charged or refused in both.

    Each charged report is one draw at ε. So the factor between the two is at most e^(ε · draws), as the guarantee says.
    """
    shown: dict[tuple[bool, ...], set[tuple[object, ...]]] = {}
    for number, sets in enumerate(product("ABC", repeat=4)):
        path = tmp_path / str(number) if restarts else None
        client = local.Client(PROTOCOL, budget, path)
        contents: list[bytes | None] = []
        for held in sets:
            client = local.Client(PROTOCOL, budget, path) if restarts else client
            try:
                contents.append(client.report([held])[CONTENT])
            except BudgetExceeded:
                contents.append(None)
        repeats = tuple(contents.index(content) for content in contents)
        seen = (repeats, tuple(content is None for content in contents), client.guarantee.epsilon)
        changes = tuple(before != after for before, after in pairwise(sets))
        shown.setdefault(changes, set()).add(seen)
    assert len(shown) == 8
    assert all(len(patterns) == 1 for patterns in shown.values()), shown
    assert "compares sequences of sets that change at the same times" in str(client.guarantee)


def test_a_death_between_charge_and_draw_does_not_bring_an_earlier_answer_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A, B interrupted, A: as with any third set, the last report is drawn anew."""
    client = local.Client(PROTOCOL, 3.0, tmp_path / "device")
    first = client.report(["a"])

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(local.SubsetHashing, "randomise", crash)
    with pytest.raises(KeyboardInterrupt):
        client.report(["b"])
    monkeypatch.undo()
    again = local.Client(PROTOCOL, 3.0, tmp_path / "device")
    assert again.report(["a"])[CONTENT] != first[CONTENT]
    assert again.spent == 3.0


def test_a_period_has_one_report_whatever_is_held() -> None:
    client = local.Client(PROTOCOL, budget=5.0)
    monday = client.report(["a"], period="monday")
    assert client.report(["a"], period="monday") == monday
    assert client.report(["quite", "different"], period="monday") == monday
    assert client.spent == 1.0
    tuesday = client.report(["a"], period="tuesday")
    assert tuesday[ID] != monday[ID]
    assert tuesday[CONTENT] == monday[CONTENT]


def test_the_budget_is_never_passed_and_refusal_says_no_key() -> None:
    client = local.Client(PROTOCOL, budget=1.9)
    client.report(["a"])
    with pytest.raises(BudgetExceeded) as refusal:
        client.report(["secret"])
    assert "secret" not in str(refusal.value)
    assert client.spent == 1.0
    with pytest.raises(BudgetExceeded):  # an answer now would show that the set returned
        client.report(["a"])


def test_ten_tenths_fit_into_one() -> None:
    client = local.Client(local.SubsetHashing(0.1, max_items=1), budget=1.0)
    for i in range(10):
        client.report([i])
    with pytest.raises(BudgetExceeded):
        client.report([10])


def test_the_charge_is_on_disk_before_the_noise_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "device"
    client = local.Client(PROTOCOL, 2.0, path)
    client.report(["a"])

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(local.SubsetHashing, "randomise", crash)
    with pytest.raises(KeyboardInterrupt):
        client.report(["b"])
    monkeypatch.undo()
    assert local.Client(PROTOCOL, 2.0, path).spent == 2.0


def test_state_survives_a_restart_and_keeps_no_set(tmp_path: Path) -> None:
    path = tmp_path / "device"
    before = local.Client(PROTOCOL, 3.0, path)
    monday = before.report(["liquorice"], period="monday")
    after = local.Client(PROTOCOL, 3.0, path)
    assert after.spent == 1.0
    assert after.report(["liquorice"], period="monday") == monday
    assert after.report(["liquorice"])[CONTENT] == monday[CONTENT]
    assert b"liquorice" not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(SensitiveData):
        files.read(path, allow_sensitive=False)
    with pytest.raises(SpecMismatch):
        local.Client(PROTOCOL, 9.0, path)
    with pytest.raises(SpecMismatch):
        local.Client(local.SubsetHashing(1.0, max_items=5), 3.0, path)


def test_two_copies_cannot_spend_one_budget() -> None:
    client = local.Client(PROTOCOL, 3.0)
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(SensitiveData):
            leak(client)
    client.report(["secret"])
    assert "secret" not in repr(client)


def test_the_guarantee_adds_up_and_says_what_linking_shows() -> None:
    client = local.Client(PROTOCOL, 3.0)
    client.report(["a"])
    client.report(["a"])
    client.report(["b"])
    promised = client.guarantee
    assert promised.epsilon == 2.0
    assert len(promised.costs) == 2
    assert "when the set changed" in str(promised)


def test_a_fresh_answer_every_period_is_charged_every_period() -> None:
    client = local.Client(PROTOCOL, 3.0, unchanged="fresh")
    monday = client.report(["a"], period="monday")
    tuesday = client.report(["a"], period="tuesday")
    assert tuesday[CONTENT] != monday[CONTENT]
    assert client.report(["a"], period="monday") == monday  # announced again, or backwards: the same bytes for nothing
    assert client.spent == 2.0
    assert "when the set changed" not in str(client.guarantee)
    client.report(["a"])
    assert client.remaining == 0.0
    with pytest.raises(BudgetExceeded):
        client.report(["a"], period="wednesday")
    assert client.report(["b"], period="tuesday") == tuesday


def test_fresh_answers_stay_fresh_over_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "device"
    first = local.Client(PROTOCOL, 3.0, path, unchanged="fresh").report(["a"])
    again = local.Client(PROTOCOL, 3.0, path, unchanged="fresh")
    assert again.report(["a"])[CONTENT] != first[CONTENT]
    assert again.spent == 2.0
    with pytest.raises(SpecMismatch):
        local.Client(PROTOCOL, 3.0, path)


@pytest.mark.parametrize("budget", [np.float64(2), np.float32(2), np.int64(2), np.uint8(2), 2])
def test_a_budget_may_be_any_real_number(tmp_path: Path, budget: float) -> None:
    client = local.Client(PROTOCOL, budget, tmp_path / "device")
    client.report(["a"])
    assert (client.spent, client.remaining) == (1.0, 1.0)
    assert type(client.remaining) is float
    assert local.Client(PROTOCOL, 2.0, tmp_path / "device").spent == 1.0


def test_a_period_that_cannot_be_written_down_costs_nothing(tmp_path: Path) -> None:
    client = local.Client(PROTOCOL, 2.0, tmp_path / "device")
    with pytest.raises(InvalidInput, match="Unicode"):
        client.report(["a"], period="\ud800")
    assert client.spent == 0.0
    client.report(["a"], period="")
    assert client.spent == 1.0


@pytest.mark.parametrize("budget", [0, 0.5, -1, float("nan"), float("inf"), True, "3", None, np.bool_(True), 1 + 0j])
def test_a_budget_must_cover_one_report(budget: object) -> None:
    with pytest.raises(InvalidInput):
        local.Client(PROTOCOL, budget)  # type: ignore[arg-type]


def test_bad_arguments() -> None:
    client = local.Client(PROTOCOL, 3.0)
    with pytest.raises(InvalidInput):
        client.report("abc")
    with pytest.raises(InvalidInput):
        client.report(["a"], period=7)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        local.Client("protocol", 3.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        local.Client(PROTOCOL, 3.0, unchanged="forget")  # type: ignore[arg-type]
    assert client.spent == 0.0


def test_repetition_does_not_average_the_noise_away() -> None:
    """A hundred reports of one set name one bucket; a hundred fresh ones would name the occupied bucket most often."""
    client = local.Client(local.SubsetHashing(1.0, max_items=1), budget=1.0)
    contents = {client.report([42])[CONTENT] for _ in range(100)}
    assert len(contents) == 1


def test_every_protocol_for_sets_can_be_reported_by_a_client() -> None:
    for protocol in (
        local.SampledBit(1.0, width=16),
        local.SubsetDirect(1.0, max_items=2, domain=["a", "b"]),
        local.PrefixHeavyHitters(1.0, max_items=2, length=4),
        local.SetSizes(1.0, largest=10),
    ):
        client = local.Client(protocol, budget=1.0)
        messages = [client.report(["a", "b"]) for _ in range(3)]
        assert protocol.collector().receive(messages).accepted == 3
        assert client.spent == 1.0


def test_a_protocol_for_one_item_takes_exactly_one() -> None:
    protocol = local.OptimalLocalHashing(1.0)
    client = local.Client(protocol, budget=1.0)
    for wrong in ([], ["a", "b"]):
        with pytest.raises(InvalidInput):
            client.report(wrong)
    assert client.spent == 0.0
    assert protocol.collector().receive([client.report(["a"])]).accepted == 1


def test_identifiers_are_not_made_from_the_data() -> None:
    """128 bits that differ between clients with one set; every byte value occurs (4,000 bytes)."""
    ids = [local.Client(PROTOCOL, 1.0).report(["a"])[ID] for _ in range(250)]
    assert len(set(ids)) == 250
    assert len(np.unique(np.frombuffer(b"".join(ids), np.uint8))) == 256
