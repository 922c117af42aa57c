"""Centred counts of a short public list: a unit counts for as many keys as the release states."""

from __future__ import annotations

import dpsketch as dps
from dpsketch.laws.entries import CentredCounts

USERS, DAYS, MOST = 4000, 7, 6


def test_a_user_counts_for_no_more_keys_than_the_release_states() -> None:
    """All seven days of a user counted, and the release stated "at most 6 keys counted each"."""
    histogram = dps.Histogram(unit=dps.per_user(max_keys=MOST))
    days, users = list(range(DAYS)) * USERS, [user for user in range(USERS) for _ in range(DAYS)]
    histogram.update(days, users=users)
    found = histogram.release(epsilon=1.0, delta=1e-6, keys=list(range(DAYS)))
    assert isinstance(found.law, CentredCounts)
    estimates = found.estimate(list(range(DAYS)))
    assert f"at most {MOST} keys" in estimates.counts
    assert abs(float(estimates.value.sum()) - MOST * USERS) < USERS / 2  # more than 20 standard deviations
