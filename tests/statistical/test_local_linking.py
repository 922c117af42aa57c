"""How often the reports of one person in two periods are found to be of one person, as the documentation states it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from dpsketch import local, noise

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "collect-from-devices.md"
PEOPLE = 1000
APPS = [f"app {i}" for i in range(200)]
CONTENT = slice(25, None)

# What the page states of each, in per cent; a person holds three of 200 apps, and ε is 1.
STATED: dict[str, tuple[local.LocalProtocol, int]] = {
    "SubsetHashing": (local.SubsetHashing(1.0, max_items=3), 99),
    "SampledBit": (local.SampledBit(1.0, width=64), 100),
    "OptimalLocalHashing": (local.OptimalLocalHashing(1.0), 97),
    "CountMeanSketch": (local.CountMeanSketch(1.0), 100),
    "HadamardCountMean": (local.HadamardCountMean(1.0), 100),
    "PrefixHeavyHitters": (local.PrefixHeavyHitters(1.0, max_items=3, length=7), 99),
    "SubsetDirect": (local.SubsetDirect(1.0, max_items=3, domain=APPS), 20),
    "SetSizes": (local.SetSizes(1.0, largest=100), 4),
}
SINGLE = (local.OptimalLocalHashing, local.CountMeanSketch, local.HadamardCountMean)


def held(people: int) -> list[list[str]]:
    rng = np.random.default_rng(1)
    weights = 1 / np.arange(1, len(APPS) + 1)
    chosen = [rng.choice(len(APPS), 3, replace=False, p=weights / weights.sum()) for _ in range(people)]
    return [[APPS[i] for i in one] for one in chosen]


def linked(before: list[bytes], after: list[bytes]) -> float:
    """Return how often a guess among the later reports with the same content is right, and any guess without one.

    The two lists are in the same order of people, which whoever guesses does not see.
    """
    same = Counter(after)
    right = [
        (one == other) / same[one] if same[one] else 1 / len(after) for one, other in zip(before, after, strict=True)
    ]
    return sum(right) / len(right)


def reported(unchanged: Literal["same", "fresh"], people: int) -> float:
    with noise.seeded_noise_for_tests_only(3):
        clients = [local.Client(STATED["SubsetHashing"][0], 2.0, unchanged=unchanged) for _ in range(people)]
        periods = [
            [client.report(items, period=period)[CONTENT] for client, items in zip(clients, held(people), strict=True)]
            for period in ("monday", "tuesday")
        ]
    return linked(*periods)


def test_repeated_answers_link_nearly_everyone() -> None:
    """At least 97% of 1,000: contents that two share are a Poisson number of mean 8, above 30 with probability 1e-9."""
    assert reported("same", PEOPLE) > 0.97


@pytest.mark.parametrize("name", STATED)
def test_the_page_states_what_is_measured(name: str) -> None:
    """Within two per cent of what is stated. The noise is seeded; over seeds the share has a deviation below 0.4%."""
    protocol, stated = STATED[name]
    sets = held(PEOPLE)
    with noise.seeded_noise_for_tests_only(4):
        made = protocol.report([one[0] for one in sets] if isinstance(protocol, SINGLE) else sets)
    contents = [message[CONTENT] for message in protocol.to_bytes(made)]
    share = linked(contents, contents)  # an answer that is repeated
    assert abs(100 * share - stated) < 2
    assert f"| `{name}` | {stated}% | 0.1% |" in PAGE.read_text(encoding="utf-8").splitlines()
