"""A spec comes from whoever announces it: only a protocol that keeps the promise it states may touch a person's set."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpsketch import local
from dpsketch.errors import BudgetExceeded, DpsketchError, InvalidInput
from dpsketch.local.catalogue import nonprivate_protocol_from_json

COMPARED: list[local.LocalProtocol] = [
    local.PrivSketchAsPublished(0.01, rows=2, width=9),
    local.MultiPCMS(1.0, rows=4, width=12),
    local.PadAndSample(1.0, length=3),
]
SERIOUS: list[local.LocalProtocol] = [
    local.SubsetHashing(1.0, max_items=3),
    local.SubsetDirect(1.0, max_items=2, domain=["a", "b", "c"]),
    local.SampledBit(1.0, width=8, rows=16),
    local.OptimalLocalHashing(1.0),
    local.CountMeanSketch(1.0, rows=4, width=12),
    local.HadamardCountMean(1.0, rows=4, width=16),
    local.PrefixHeavyHitters(1.0, max_items=2, length=4),
    local.SetSizes(1.0, largest=9),
]

named = {"ids": lambda each: f"{each.name}-{each.fingerprint[:4]}"}
for_comparison = pytest.mark.parametrize("protocol", COMPARED, **named)
for_people = pytest.mark.parametrize("protocol", SERIOUS, **named)


def test_every_protocol_is_one_or_the_other() -> None:
    assert {type(each) for each in COMPARED + SERIOUS} == set(local.PROTOCOLS.values())


@for_comparison
def test_what_is_kept_for_comparison_never_reaches_a_persons_set(protocol: local.LocalProtocol, tmp_path: Path) -> None:
    announced = json.loads(json.dumps(protocol.to_json()))
    (tmp_path / "spec.json").write_text(json.dumps(announced), encoding="utf-8")
    ways: list[Callable[[], object]] = [
        lambda: local.Client(protocol, budget=5.0),
        lambda: local.Client(nonprivate_protocol_from_json(announced), budget=5.0),
        lambda: local.protocol_from_json(announced),
        lambda: local.read_spec(tmp_path / "spec.json"),
    ]
    for way in ways:
        with pytest.raises(InvalidInput, match="for comparison"):
            way()


@for_comparison
def test_what_was_collected_for_comparison_can_still_be_read(protocol: local.LocalProtocol, tmp_path: Path) -> None:
    protocol.collector().add(protocol.report([["a"], ["b", "a"]])).save(tmp_path / "c.dps")
    collector = local.load(tmp_path / "c.dps")
    assert (collector.protocol, collector.users) == (protocol, 2)
    with pytest.raises(InvalidInput, match="for comparison"):
        local.Client(collector.protocol, budget=5.0)


@for_people
def test_a_protocol_that_people_use_may_be_announced_and_costs_what_it_states(protocol: local.LocalProtocol) -> None:
    announced = local.protocol_from_json(json.loads(json.dumps(protocol.to_json())))
    assert announced == protocol
    client = local.Client(announced, budget=1.0)
    messages = [client.report(["a"]) for _ in range(3)]
    assert client.spent == protocol.guarantee.epsilon == client.guarantee.epsilon == 1.0
    assert protocol.collector().receive(messages).accepted == 3


class Modest(local.SubsetHashing):
    """States another ε than it draws with."""

    @property
    def guarantee(self) -> Any:
        return local.SubsetHashing(0.01, max_items=self.max_items).guarantee


def test_a_protocol_of_ones_own_making_is_no_protocol_for_people() -> None:
    with pytest.raises(InvalidInput):
        local.Client(Modest(8.0, max_items=2), budget=9.0)


def test_a_promise_that_differs_from_the_epsilon_drawn_with_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    small = local.SubsetHashing(0.01, max_items=2).guarantee
    monkeypatch.setattr(local.SubsetHashing, "guarantee", property(lambda _: small))
    with pytest.raises(InvalidInput, match="epsilon"):
        local.Client(local.SubsetHashing(8.0, max_items=2), budget=9.0)


@pytest.mark.parametrize(
    "forged",
    [
        {"epsilon": 8.0},  # under the fingerprint of another ε
        {"fingerprint": "0" * 16},
        {"guarantee": {"epsilon": 0.01}},  # a promise of its own
        {"spent": 0.0},
        {"epsilon": "1.0"},
        {"protocol": "privsketch-as-published"},
        {"protocol": {}},
        {"max_items": 4},
        {"max_items": 1e400},
        {"": 1},
    ],
    ids=str,
)
def test_forged_fields_are_refused(forged: dict[str, Any]) -> None:
    spec = local.SubsetHashing(1.0, max_items=3).to_json()
    with pytest.raises(DpsketchError):
        local.protocol_from_json({**spec, **forged})
    for value in (None, [], "x", {}, {"protocol": None}):
        with pytest.raises(InvalidInput):
            local.protocol_from_json(value)


def test_a_spec_that_says_one_thing_twice_is_refused(tmp_path: Path) -> None:
    """Readers differ in which of two they take: one would agree to what another draws with."""
    text = json.dumps(local.SubsetHashing(1.0, max_items=3).to_json())
    (tmp_path / "spec.json").write_text('{"epsilon": 20.0, ' + text[1:], encoding="utf-8")
    with pytest.raises(DpsketchError):
        local.read_spec(tmp_path / "spec.json")


def test_an_announcement_that_asks_for_more_than_the_budget_is_refused() -> None:
    """An ε raised together with its fingerprint is a spec like any other: the person's budget is what stops it."""
    raised = local.protocol_from_json(local.SubsetHashing(20.0, max_items=3).to_json())
    with pytest.raises(InvalidInput, match="budget"):
        local.Client(raised, budget=1.0)
    client = local.Client(local.protocol_from_json(local.SubsetHashing(1.0, max_items=3).to_json()), budget=1.0)
    client.report(["a"])
    with pytest.raises(BudgetExceeded):
        client.report(["b"])


def test_seeded_noise_is_told_and_not_promised(seeded: None) -> None:
    client = local.Client(SERIOUS[0], budget=1.0)
    client.report(["a"])
    assert not client.guarantee.holds
