"""What every local protocol promises, whatever it is: one shape, one wire form, one collector."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dpsketch import answers, files, local, noise
from dpsketch.errors import DpsketchError, FileRefused, InvalidInput, SpecMismatch
from dpsketch.local.catalogue import nonprivate_protocol_from_json

PROTOCOLS: list[local.LocalProtocol] = [
    local.SubsetHashing(1.0, max_items=3),
    local.SubsetDirect(1.0, max_items=2, domain=["secret-a", "secret-b", "secret-c"]),
    local.SampledBit(1.0, width=8, rows=16),
    local.OptimalLocalHashing(1.0),
    local.CountMeanSketch(1.0, rows=4, width=12),
    local.HadamardCountMean(1.0, rows=4, width=16),
    local.PrivSketchAsPublished(1.0, rows=2, width=9),
    local.PrivSketchAsPublished(1.0, rows=2, width=9, variant="unsampled"),
    local.MultiPCMS(1.0, rows=4, width=12, decoder="min"),
    local.PadAndSample(1.0, length=3),
    local.PrefixHeavyHitters(1.0, max_items=2, length=9, alphabet="secrt-abcn"),
    local.SetSizes(1.0, largest=9),
]
SINGLE = (local.OptimalLocalHashing, local.CountMeanSketch, local.HadamardCountMean)

NOT_FOR_PEOPLE = (local.PrivSketchAsPublished, local.MultiPCMS, local.PadAndSample)
COMPARED = [protocol for protocol in PROTOCOLS if isinstance(protocol, NOT_FOR_PEOPLE)]
SERIOUS = [protocol for protocol in PROTOCOLS if not isinstance(protocol, NOT_FOR_PEOPLE)]


def marked(protocols: list[local.LocalProtocol]) -> Any:
    return pytest.mark.parametrize("protocol", protocols, ids=lambda each: f"{each.name}-{each.fingerprint[:4]}")


every_protocol, for_comparison, for_people = marked(PROTOCOLS), marked(COMPARED), marked(SERIOUS)


def people(protocol: local.LocalProtocol, n: int = 50) -> list[Any]:
    sets: list[list[str]] = [["secret-a"], ["secret-b", "secret-a"], ["secret-c"], ["secret-a"], ["secret-b"]]
    held = [sets[i % 5] for i in range(n)]
    return [one[0] for one in held] if isinstance(protocol, SINGLE) else held


def keys(protocol: local.LocalProtocol) -> list[Any]:
    return [0, 1] if isinstance(protocol, local.SetSizes) else ["secret-a", "secret-c"]


def state(collector: local.Collector) -> dict[str, Any]:
    return {name: np.sort(np.asarray(array), axis=0).tolist() for name, array in collector.to_document().arrays.items()}


def test_the_catalogue_has_every_protocol() -> None:
    assert {type(protocol) for protocol in PROTOCOLS} == set(local.PROTOCOLS.values())


@every_protocol
def test_collecting_and_estimating(protocol: local.LocalProtocol) -> None:
    reports = protocol.report(people(protocol, 4000))
    assert reports.column_names == ["id", *(field.name for field in protocol.fields)]
    assert len(set(reports["id"].to_pylist())) == 4000
    collector = protocol.collector()
    with pytest.raises(InvalidInput, match="no reports"):
        collector.estimate(keys(protocol))
    collector.add(reports)
    with pytest.raises(InvalidInput, match="counted before"):
        collector.add(reports.slice(3999))
    assert "secret" not in repr(collector)
    found, narrower = (collector.estimate(keys(protocol), confidence=each) for each in (0.9, 0.5))
    assert (found.key, found.confidence) == (keys(protocol), 0.9)
    assert (found.low <= found.value).all()
    assert (found.value <= found.high).all()
    assert (narrower.high - narrower.low < found.high - found.low).all()
    with pytest.raises(InvalidInput):
        collector.estimate(keys(protocol), confidence=1)
    other = protocol.collector().add(protocol.report(people(protocol, 20)))
    collector.merge(other)
    merged = state(collector)
    for refused in (other, replace(protocol, epsilon=2.0).collector()):
        with pytest.raises(DpsketchError, match=r"both|cannot merge"):
            collector.merge(refused)
        assert state(collector) == merged


@every_protocol
def test_repeated_reports_are_refused_and_nothing_is_added(protocol: local.LocalProtocol) -> None:
    collector = protocol.collector()
    reports = protocol.report(people(protocol))
    collector.add(reports)
    before = state(collector)
    fresh = protocol.report(people(protocol))
    for bad in (reports, pa.concat_tables([fresh, reports.slice(3, 1)]), pa.concat_tables([fresh, fresh.slice(0, 1)])):
        with pytest.raises(InvalidInput, match="counted before"):
            collector.add(bad)
        assert state(collector) == before
    messages = protocol.to_bytes(reports) + protocol.to_bytes(fresh) + protocol.to_bytes(fresh.slice(0, 2))
    assert collector.receive(messages) == local.Received(50, 52, 0, 0)
    assert collector.users == 100


@every_protocol
def test_malformed_reports_are_refused_and_never_quoted(protocol: local.LocalProtocol) -> None:
    collector = protocol.collector()
    reports = protocol.report(people(protocol, 1))
    [good], [item] = protocol.to_bytes(reports), protocol.to_objects(reports)
    last = protocol.fields[-1].name
    bad: list[Any] = [
        good[:-1],
        good + b"\0",
        b"\2" + good[1:],
        good[:9] + bytes(16) + good[25:],
        "[" * 100_000,
        None,
        {**item, "dpsketch": True},
        {**item, "id": "zz" * 16},
        {**item, "more": 1},
        {key: value for key, value in item.items() if key != last},
        *({**item, last: value} for value in (-1, 2**32, 1.0, True, None, [1])),
    ]
    assert collector.receive(bad) == local.Received(0, 0, 0, len(bad))
    other = replace(protocol, epsilon=2.0)
    theirs = other.report(people(protocol, 7))
    for messages in (other.to_bytes(theirs), other.to_objects(theirs)):
        assert collector.receive(messages) == local.Received(0, 0, 7, 0)
    with pytest.raises(SpecMismatch):
        collector.add(theirs)
    for field in protocol.fields:
        if not field.raw:
            assert field.limit is not None
            wrong = [{**item, field.name: value} for value in (field.limit, 2 ** (8 * field.size) - 1)]
            assert collector.receive(wrong) == local.Received(0, 0, 0, 2)
    assert collector.receive([good]).accepted == 1


@every_protocol
def test_a_collector_goes_on_from_its_file_and_a_forged_one_is_refused(
    protocol: local.LocalProtocol, tmp_path: Path
) -> None:
    reports = protocol.report(people(protocol))
    collector = protocol.collector().add(reports)
    collector.save(tmp_path / "c.dps")
    again = local.load(tmp_path / "c.dps")
    assert (again.protocol, state(again)) == (protocol, state(collector))
    with pytest.raises(InvalidInput, match="counted before"):
        again.add(reports)
    honest = collector.to_document()
    first = next(iter(set(honest.arrays) - {"ids"}))
    table = np.asarray(honest.arrays[first])
    forged = [
        {"ids": np.asarray(honest.arrays["ids"])[:-1]},
        {"ids": np.ones((50, 2), np.uint64)},
        {first: np.full_like(table, 255 if table.dtype == np.uint8 else 60_000)},
        {first: table[:-1]},
    ]
    for changes in forged:
        document = files.Document("local", False, honest.header, {**honest.arrays, **changes})
        with pytest.raises(FileRefused):
            local.Collector.from_document(document)


@every_protocol
def test_a_file_does_not_tell_in_which_order_reports_came(protocol: local.LocalProtocol, tmp_path: Path) -> None:
    reports = protocol.report(people(protocol))
    written = set()
    for order in (range(50), reversed(range(50)), [*range(25, 50), *range(25)]):
        collector = protocol.collector()
        for place in order:
            collector.add(reports.slice(place, 1))
        collector.save(tmp_path / "c.dps")
        written.add((tmp_path / "c.dps").read_bytes())
    assert len(written) == 1


@marked([protocol for protocol in PROTOCOLS if not isinstance(protocol, SINGLE)])
def test_a_key_that_a_person_lists_twice_counts_once(protocol: local.LocalProtocol) -> None:
    drawn = []
    for times in (1, 9):
        with noise.seeded_noise_for_tests_only(1):
            drawn.append(protocol.report([["secret-a"] * times] * 200))
    assert drawn[0].equals(drawn[1])


@every_protocol
def test_the_guarantee_names_epsilon_the_unit_and_the_relation(protocol: local.LocalProtocol) -> None:
    promised = protocol.guarantee
    assert promised.epsilon == protocol.epsilon
    assert promised.delta == 0
    assert promised.unit.neighbours == "replace"
    assert promised.holds is not isinstance(protocol, local.PrivSketchAsPublished)
    assert ("not locally private: the ordering matrix reveals the set" in str(promised)) is not promised.holds
    with noise.seeded_noise_for_tests_only(1):
        assert not protocol.guarantee.holds
        made_for_tests = protocol.report(people(protocol))
    collector = protocol.collector().add(protocol.report(people(protocol)))
    assert collector.guarantee.holds is promised.holds
    collector.add(made_for_tests)
    assert not collector.guarantee.holds
    assert not local.Collector.from_document(collector.to_document()).guarantee.holds


def test_senseless_parameters_are_refused() -> None:
    wrong: list[Callable[[], object]] = [
        lambda: local.SubsetHashing(1.0, 3, width=3),
        lambda: local.SubsetDirect(1.0, 3, ["a", "a"]),  # type: ignore[arg-type]
        lambda: local.SampledBit(1.0, width=2**16, rows=2**16),
        lambda: local.HadamardCountMean(1.0, width=24),
        *(lambda epsilon=epsilon: local.SampledBit(epsilon, width=8) for epsilon in (0.0001, 21, "1")),
        lambda: local.PrefixHeavyHitters(1.0, 1, 4, alphabet="ä"),
    ]
    for make in wrong:
        with pytest.raises(InvalidInput):
            make()


@pytest.mark.statistical
def test_one_bit_protocols_point_the_right_way() -> None:
    """What everybody holds is estimated as held by everybody: bits are kept more often than flipped.

    False-positive rate below 1e-9: shares of 1 and 0 from 4,000 reports at ε = 3, 20 standard errors apart.
    """
    sizes = local.SetSizes(epsilon=3.0, largest=4)
    found = sizes.collector().add(sizes.report([[0, 1]] * 4000)).estimate(sizes.thresholds)
    assert found.value[0] > 0.5 > found.value[-1]
    means = local.HadamardCountMean(epsilon=3.0, rows=4, width=16)
    shares = means.collector().add(means.report(["tea"] * 4000)).estimate(["tea", "milk"]).value
    assert shares[0] > 0.5 > shares[1]


# A spec comes from whoever announces it: only a protocol that keeps what it states may touch a person's set.


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


@for_people
def test_a_protocol_that_people_use_may_be_announced_and_costs_what_it_states(
    protocol: local.LocalProtocol, tmp_path: Path
) -> None:
    local.write_spec(tmp_path / "spec.json", protocol)
    announced = local.read_spec(tmp_path / "spec.json")
    assert announced == local.protocol_from_json(json.loads(json.dumps(protocol.to_json()))) == protocol
    client = local.Client(announced, budget=1.0)
    messages = [client.report(["a"]) for _ in range(3)]
    assert client.spent == protocol.guarantee.epsilon == client.guarantee.epsilon == 1.0
    assert protocol.collector().receive(messages).accepted == 3


def test_a_promise_that_differs_from_the_epsilon_drawn_with_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a protocol of one's own making one for people, whatever it promises."""
    small = local.SubsetHashing(0.01, max_items=2).guarantee
    modest: Any = type("Modest", (local.SubsetHashing,), {"guarantee": small})
    with pytest.raises(InvalidInput):
        local.Client(modest(8.0, max_items=2), budget=9.0)
    monkeypatch.setattr(local.SubsetHashing, "guarantee", property(lambda _: small))
    with pytest.raises(InvalidInput, match="epsilon"):
        local.Client(local.SubsetHashing(8.0, max_items=2), budget=9.0)


@pytest.mark.parametrize(
    "forged",
    [
        {"epsilon": 8.0},  # under the fingerprint of another ε
        {"fingerprint": "0" * 16},
        {"guarantee": {"epsilon": 0.01}},  # a promise of its own
        {"protocol": "privsketch-as-published"},
        {"max_items": 4},
        {"": 1},
    ],
    ids=str,
)
def test_forged_fields_are_refused(forged: dict[str, Any]) -> None:
    spec = local.SubsetHashing(1.0, max_items=3).to_json()
    with pytest.raises(DpsketchError):
        local.protocol_from_json({**spec, **forged})


# Of two ε in one spec one reader would agree to what another draws with.
TWICE = '{"epsilon": 20.0, ' + json.dumps(local.SubsetHashing(1.0, max_items=3).to_json())[1:]


@pytest.mark.parametrize("content", ["", "[]", "{", "[" * 100_000, '{"protocol": "x"}', TWICE])
def test_a_file_that_is_no_spec_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "spec.json").write_text(content)
    with pytest.raises((FileRefused, InvalidInput)):
        local.read_spec(tmp_path / "spec.json")


@pytest.mark.parametrize(("name", "other"), [("r.jsonl", b"\xff\xfe\n\n   \nnot json\n"), ("r.reports", b"")])
def test_reports_are_appended_and_a_file_that_was_cut_loses_its_last_only(
    tmp_path: Path, name: str, other: bytes
) -> None:
    path, protocol, bad = tmp_path / name, PROTOCOLS[0], 2 if other else 0
    path.write_bytes(other)
    for _ in range(2):
        assert local.write_reports(path, protocol, protocol.report([["a", "b"], ["b"], []])) == 3
    collector = protocol.collector()
    path.write_bytes(path.read_bytes()[:-5])
    assert collector.receive(local.read_reports(path, protocol)) == local.Received(5, 0, 0, bad + 1)


def test_a_key_outside_a_listed_domain_is_left_out_and_cannot_be_asked_for() -> None:
    protocol = local.SubsetDirect(8.0, max_items=1, domain=["a", "b"])
    with noise.seeded_noise_for_tests_only(1):
        collector = protocol.collector().add(protocol.report([["a", "elsewhere"], ["elsewhere"]] * 500))
    assert abs(collector.estimate(["a"]).value[0] - 0.5) < 0.05
    with pytest.raises(InvalidInput, match="domain"):
        collector.estimate(["elsewhere"])


def words_of(protocol: Any) -> str:
    """What an answer counts of each person: its interval is for that, not for all that a person holds."""
    if isinstance(protocol, SINGLE):
        return "shares of people, who report one item each"
    if isinstance(protocol, local.SampledBit):
        return "shares of people"
    return f"shares of people, clipped: at most {protocol.max_items} items counted of each"


@marked([protocol for protocol in SERIOUS if not isinstance(protocol, local.SetSizes)])
def test_every_answer_says_what_it_counts(protocol: Any) -> None:
    protocol, said = replace(protocol, epsilon=4.0), words_of(protocol)
    with noise.seeded_noise_for_tests_only(1):
        collector = protocol.collector().add(protocol.report(people(protocol, 400)))
    for asked in (collector, collector.copy()):
        assert asked.counts == said
        found = [
            asked.estimate(["secret-a"]),
            asked.top(1, candidates=["secret-a"]),
            answers.answer(asked, ["secret-a"], 0.95, None),
            answers.top(asked, 1, ["secret-a"], 0.95),
        ]
        assert {each.counts for each in found} == {said}
        assert said in repr(found[0])
        assert said in found[0]._repr_html_()
    if hasattr(protocol, "find"):
        assert protocol.find(collector).counts == said
    assert said in collector.plot(candidates=["secret-a"]).axes[0].get_title("left")


def test_intervals_are_for_the_clipped_share() -> None:
    """Everyone holds four items, of which two count: the interval holds 1/2, and not the share of holders, 1.

    The interval misses with probability 1e-6; the noise is seeded.
    """
    protocol = local.SubsetHashing(4.0, max_items=2)
    with noise.seeded_noise_for_tests_only(1):
        collector = protocol.collector().add(protocol.report([["a", "b", "c", "d"]] * 5000))
    found = collector.estimate(["a"], confidence=1 - 1e-6)
    assert found.low[0] < 0.5 < found.high[0] < 0.8
