"""Histograms: names that passed a threshold, public lists, users, and bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import dpsketch as dps
from benchmarks.coverage.data import KEYS, Integers, named_keys, zipf
from benchmarks.coverage.measuring import BUDGETS, RELEASES, Answer, Case


def near_threshold(rng: np.random.Generator) -> Integers:
    """Spread counts over where some keys pass and some do not."""
    return rng.integers(1, 60, KEYS)


SHAPES = {"Zipf": zipf, "counts to 60": near_threshold}


def answers(private: Any, keys: Integers, counts: Integers, *, all_keys: bool) -> Iterator[Answer]:
    """Ask for the keys of a release, for those that are found if not for all, and for its lists."""
    names = np.array(private.keys, np.int64)
    truth = counts[np.searchsorted(keys, names)]
    yield Answer.of("estimate, published keys", truth, private.estimate(names))
    if hasattr(private, "sum"):  # votes have none
        yield Answer.of("sum, published keys", truth.sum(), private.sum())
    if all_keys:
        yield Answer.of("estimate, all keys", counts, private.estimate(keys))
    top = private.top(20)
    yield Answer.of("top 20, jointly", counts[np.searchsorted(keys, top.key)], top, joint=True)


def thresholds(shape: str) -> Iterator[Case]:
    """Keys that nobody listed: those that passed did so with the help of their noise."""

    def trial(seed: int) -> Iterator[Answer]:
        keys, counts = named_keys(seed), SHAPES[shape](np.random.default_rng(seed))
        histogram = dps.Histogram(unit=dps.per_record(), key_type="int")
        histogram.update(keys, counts=counts)
        private = histogram.release(**BUDGETS["δ > 0"], others=True)
        yield from answers(private, keys, counts, all_keys=True)
        rest = counts[~np.isin(keys, private.keys)].sum()
        yield Answer.of("others", rest, private.others)

    yield Case("Histogram", f"{shape}, records, unknown keys", "δ > 0", RELEASES, trial)


def public_lists(budget: str) -> Iterator[Case]:
    """Publish a list of half the keys, and all others together."""

    def trial(seed: int) -> Iterator[Answer]:
        keys, counts = named_keys(seed), zipf(np.random.default_rng(seed))
        histogram = dps.Histogram(unit=dps.per_record(), key_type="int")
        histogram.update(keys, counts=counts)
        private = histogram.release(**BUDGETS[budget], keys=keys[::2], others=True)
        yield from answers(private, keys, counts, all_keys=False)
        yield Answer.of("others", counts[1::2].sum(), private.others)

    yield Case("Histogram", "Zipf, records, public list", budget, RELEASES, trial)


def held_by(seed: int, people: int, keys: int, each: int) -> tuple[Integers, Integers, Integers]:
    """Give people so many different keys each, small ones more often; return keys, users, and how many have each."""
    rng = np.random.default_rng(seed)
    wanted = rng.exponential(size=(people, keys)) * np.arange(1, keys + 1)
    held = np.argsort(wanted, axis=1)[:, :each]
    return held.ravel(), np.repeat(np.arange(people), each), np.bincount(held.ravel(), minlength=keys)


def users(form: Any, budget: str, *, listed: bool = False) -> Iterator[Case]:
    """Users with as many keys as are kept, so that the truth is what was counted."""

    def trial(seed: int) -> Iterator[Answer]:
        held, owners, counts = held_by(seed, 1000, 100, 5)
        histogram = dps.Histogram(unit=dps.per_user(max_keys=5), key_type="int")
        histogram.update(held, users=owners)
        keys = np.arange(len(counts))
        asked: dict[str, Any] = {"keys": keys[:60]} if listed else {"form": form}
        private = histogram.release(**BUDGETS[budget], **asked, others=True)
        yield from answers(private, keys, counts, all_keys=not listed)
        yield Answer.of("others", counts[~np.isin(keys, private.keys)].sum(), private.others)

    what = "public list" if listed else f"unknown keys, {form}"
    yield Case("Histogram", f"1,000 users of 5 keys, {what}", budget, RELEASES, trial)


def cut_users(form: Any) -> Iterator[Case]:
    """Users with more keys than are kept, of different weights, beside rare keys that are neither cut nor named."""

    def trial(seed: int) -> Iterator[Answer]:
        crowd, rare = 8000, 10**6 + np.arange(3000)
        held = np.tile(np.arange(6), crowd)
        histogram = dps.Histogram(unit=dps.per_user(max_keys=2, max_weight=10), key_type="int")
        histogram.update(held, users=np.repeat(np.arange(crowd), 6), weights=np.where(held < 3, 1, 10))
        histogram.update(rare, users=rare)
        private = histogram.release(**BUDGETS["δ > 0"], form=form, others=True)
        named = [key for key in private.keys if key >= 6]
        if len(private.keys) - len(named) == 6:
            yield Answer.of("others", len(rare) - len(named), private.others)

    yield Case("Histogram", f"8,000 users of 6 keys, 2 kept, weights to 10, {form}", "δ > 0", RELEASES, trial)


def votes() -> Iterator[Case]:
    """Bounded memory: more keys than counters; and users, whose keys meet in buckets or hardly ever."""

    def records(seed: int) -> Iterator[Answer]:
        keys, counts = named_keys(seed), zipf(np.random.default_rng(seed))
        histogram = dps.VoteHistogram(unit=dps.per_record(), max_counters=1024, key_type="int", seed=seed)
        # Records come mixed: a bucket's key is who holds it when votes come in turns.
        for part in np.array_split(np.random.default_rng(seed).permutation(np.repeat(np.arange(KEYS), counts)), 4):
            histogram.update(keys[part])
        private = histogram.release(**BUDGETS["δ > 0"])
        yield from answers(private, keys, counts, all_keys=False)

    def people(buckets: int) -> Callable[[int], Iterator[Answer]]:
        def trial(seed: int) -> Iterator[Answer]:
            held, owners, counts = held_by(seed, 1000, 100, 5)
            unit = dps.per_user(max_keys=5)
            histogram = dps.VoteHistogram(unit=unit, max_counters=buckets, key_type="int", seed=seed)
            histogram.update(held, users=owners)
            yield from answers(histogram.release(**BUDGETS["δ > 0"]), np.arange(len(counts)), counts, all_keys=False)

        return trial

    yield Case("VoteHistogram", "Zipf, records, 1,024 counters", "δ > 0", RELEASES, records)
    for buckets in (64, 1 << 16):
        setting = f"1,000 users of 5 keys, {buckets:,} counters"
        yield Case("VoteHistogram", setting, "δ > 0", RELEASES, people(buckets))


def cases() -> Iterator[Case]:
    """All cases of this family."""
    for shape in SHAPES:
        yield from thresholds(shape)
    for form in ("gaussian", "weighted", "rounds"):
        yield from users(form, "δ > 0")
    for form in ("laplace", "gaussian"):
        yield from cut_users(form)
    yield from votes()
    for budget in BUDGETS:
        yield from public_lists(budget)
        yield from users(None, budget, listed=True)
