"""A device counts what it reveals, repeats itself rather than reveal more, and survives a restart."""

from __future__ import annotations

import copy
import pickle
import stat
from itertools import pairwise, product
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from dpsketch import files, local
from dpsketch.errors import BudgetExceeded, InvalidInput, SensitiveData, SpecMismatch

PROTOCOL = local.SubsetHashing(epsilon=1.0, max_items=4, width=4000)  # wide: two draws are hardly ever equal
ID = slice(9, 25)
CONTENT = slice(25, None)


def test_a_changed_set_costs_epsilon_and_an_unchanged_one_nothing() -> None:
    """Repetition does not average the noise away: what was drawn once is sent again, under another identifier."""
    client = local.Client(PROTOCOL, budget=np.float32(2))
    first = client.report(["a", "b"])
    again = [client.report(["b", "a", "a"]) for _ in range(20)]
    assert client.spent == 1.0
    assert {message[CONTENT] for message in again} == {first[CONTENT]}
    assert len({message[ID] for message in [first, *again]}) == 21
    other = client.report(["c"])
    assert (client.spent, client.remaining) == (2.0, 0.0)
    assert other[CONTENT] != first[CONTENT]
    assert client.report(["c"])[CONTENT] == other[CONTENT]
    assert (client.guarantee.epsilon, len(client.guarantee.costs)) == (2.0, 2)
    assert "when the set changed" in str(client.guarantee)


@pytest.mark.parametrize(
    ("budget", "restarts", "days"), [(1.0, False, 4), (2.0, False, 4), (4.0, False, 4), (2.0, True, 3)]
)
def test_reports_show_no_more_of_a_sequence_than_its_times_of_change(
    budget: float, restarts: bool, days: int, tmp_path: Path
) -> None:
    """A,B,A and A,B,C change at the same times: the same reports are repeats, charged or refused in both.

    Each charged report is one draw at ε. So the factor between the two is at most e^(ε · draws), as the guarantee says.
    """
    shown: dict[tuple[bool, ...], set[tuple[object, ...]]] = {}
    for number, sets in enumerate(product("ABC", repeat=days)):
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
    assert len(shown) == 2 ** (days - 1)
    assert all(len(patterns) == 1 for patterns in shown.values()), shown
    assert "compares sequences of sets that change at the same times" in str(client.guarantee)


def test_a_death_between_charge_and_draw_does_not_bring_an_earlier_answer_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A, B interrupted, A: as with any third set, the last report is drawn anew."""
    client = local.Client(PROTOCOL, 3.0, tmp_path / "device")
    first = client.report(["a"])
    monkeypatch.setattr(local.SubsetHashing, "randomise", Mock(side_effect=KeyboardInterrupt))
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
    tenths = local.Client(local.SubsetHashing(0.1, max_items=1), budget=1.0)
    for i in range(10):
        tenths.report([i])
    with pytest.raises(BudgetExceeded):
        tenths.report([10])
    client = local.Client(PROTOCOL, budget=1.9)
    client.report(["a"])
    with pytest.raises(BudgetExceeded) as refusal:
        client.report(["secret"])
    assert "secret" not in str(refusal.value)
    assert client.spent == 1.0
    with pytest.raises(BudgetExceeded):  # an answer now would show that the set returned
        client.report(["a"])


@pytest.mark.parametrize("restarts", [False, True])
def test_after_a_refused_change_the_set_before_it_is_refused_too(tmp_path: Path, restarts: bool) -> None:
    """To answer it again would tell that the set changed and changed back."""
    path = tmp_path / "client"
    client = local.Client(PROTOCOL, 1.0, path)
    client.report(["tea"])
    for items in (["milk"], ["tea"]):
        if restarts:
            client = local.Client(PROTOCOL, 1.0, path)
        with pytest.raises(BudgetExceeded):
            client.report(items)


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


def test_two_copies_cannot_spend_one_budget() -> None:
    client = local.Client(PROTOCOL, 3.0)
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(SensitiveData):
            leak(client)
    client.report(["secret"])
    assert "secret" not in repr(client)


def test_a_fresh_answer_every_period_is_charged_every_period(tmp_path: Path) -> None:
    client = local.Client(PROTOCOL, 3.0, tmp_path / "device", unchanged="fresh")
    monday = client.report(["a"], period="monday")
    tuesday = client.report(["a"], period="tuesday")
    assert tuesday[CONTENT] != monday[CONTENT]
    assert client.report(["a"], period="monday") == monday  # asked again: the same bytes for nothing
    assert client.spent == 2.0
    assert "when the set changed" not in str(client.guarantee)
    client = local.Client(PROTOCOL, 3.0, tmp_path / "device", unchanged="fresh")  # also after a restart
    assert client.report(["a"])[CONTENT] not in (monday[CONTENT], tuesday[CONTENT])
    assert client.remaining == 0.0
    with pytest.raises(BudgetExceeded):
        client.report(["a"], period="wednesday")
    assert client.report(["b"], period="tuesday") == tuesday
    with pytest.raises(SpecMismatch):
        local.Client(PROTOCOL, 3.0, tmp_path / "device")


@pytest.mark.parametrize("budget", [0.5, float("nan"), float("inf")])
def test_a_budget_must_cover_one_report(budget: float) -> None:
    with pytest.raises(InvalidInput):
        local.Client(PROTOCOL, budget)


def test_bad_arguments_cost_nothing() -> None:
    """A protocol for one item takes exactly one."""
    many, single = local.Client(PROTOCOL, 3.0), local.Client(local.OptimalLocalHashing(1.0), 1.0)
    wrong: list[Any] = [(many, "abc", None), (many, ["a"], 7), (single, [], None), (single, ["a", "b"], None)]
    for client, items, period in wrong:
        with pytest.raises(InvalidInput):
            client.report(items, period=period)
        assert client.spent == 0.0
