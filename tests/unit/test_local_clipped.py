"""Every answer of a collection says how many items of a person it counts: its interval is for that, not for all."""

from __future__ import annotations

from typing import Any

import pytest

from dpsketch import answers, local
from dpsketch.local import catalogue
from dpsketch.noise import seeded_noise_for_tests_only

CLIPPED = "shares of people, clipped: at most 2 items counted of each"
CAPPED = {
    "subset-hashing": local.SubsetHashing(4.0, max_items=2),
    "subset-direct": local.SubsetDirect(4.0, max_items=2, domain=["aa", "ab", "ba", "bb"]),
    "prefix-heavy-hitters": local.PrefixHeavyHitters(4.0, max_items=2, length=2, alphabet="ab"),
}
WHOLE = {"sampled-bit": local.SampledBit(4.0, width=16)}
SINGLE = {
    "optimal-local-hashing": local.OptimalLocalHashing(4.0),
    "count-mean-sketch": local.CountMeanSketch(4.0, rows=8, width=16),
    "hadamard-count-mean": local.HadamardCountMean(4.0, rows=8, width=16),
}
SAID = {
    **dict.fromkeys(CAPPED, CLIPPED),
    **dict.fromkeys(WHOLE, "shares of people"),
    **dict.fromkeys(SINGLE, "shares of people, who report one item each"),
}


@pytest.mark.parametrize("name", SAID)
def test_every_answer_says_what_it_counts(name: str) -> None:
    protocol: Any = {**CAPPED, **WHOLE, **SINGLE}[name]
    held: Any = ["aa", "bb"] * 200 if name in SINGLE else [["aa", "ab", "ba"], ["bb"]] * 200
    with seeded_noise_for_tests_only(1):
        collector = protocol.collector().add(protocol.report(held))
    for asked in (collector, collector.copy()):
        assert asked.counts == SAID[name]
        found = [
            asked.estimate(["aa"]),
            asked.top(1, candidates=["aa", "ab"]),
            answers.answer(asked, ["aa"], 0.95, None),
            answers.top(asked, 1, ["aa", "ab"], 0.95),
        ]
        assert {each.counts for each in found} == {SAID[name]}
        assert SAID[name] in repr(found[0])
        assert SAID[name] in found[0]._repr_html_()
    if hasattr(protocol, "find"):
        assert protocol.find(collector).counts == SAID[name]
    assert SAID[name] in collector.plot(candidates=["aa", "ab"]).axes[0].get_title("left")


def test_intervals_are_for_the_clipped_share() -> None:
    """Everyone holds four items, of which two count: the interval holds 1/2, and not the share of holders, 1.

    The interval misses with probability 1e-6; the noise is seeded.
    """
    protocol = local.SubsetHashing(4.0, max_items=2)
    with seeded_noise_for_tests_only(1):
        collector = protocol.collector().add(protocol.report([["a", "b", "c", "d"]] * 5000))
    found = collector.estimate(["a"], confidence=1 - 1e-6)
    assert found.low[0] < 0.5 < found.high[0] < 0.8


def test_every_protocol_for_people_is_tried() -> None:
    assert {each.name for each in catalogue._FOR_PEOPLE} - {*SAID} == {"set-sizes"}  # it answers no question about keys
