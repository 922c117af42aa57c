"""Several parties: each releases with a share of the noise, and the shares are merged into one release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dpsketch.core.account import Account
from dpsketch.core.drawn import Drawn, Part, Receipt
from dpsketch.core.permit import Permit
from dpsketch.errors import CounterOverflow, InvalidInput, ReleaseRefused, SpecMismatch
from dpsketch.laws.shares import MergedShares, OneShare, Share, ShareState
from dpsketch.noise import random_id
from dpsketch.numbers import whole_number
from dpsketch.privacy import Budget
from dpsketch.sketches.countsketch.addition import largest_size
from dpsketch.sketches.countsketch.private import PrivateCountSketch
from dpsketch.sketches.countsketch.spec import COUNTERS, CountSketchSpec
from dpsketch.sketches.partials import public_names
from dpsketch.sketches.specs import fingerprint_of, refuse_mismatch
from dpsketch.sketches.weights import COUNTER_LIMIT

__all__ = ["merge_releases", "release_share"]

Table = npt.NDArray[np.int64]


def release_share(
    table: Table,
    mass: int,
    partials: frozenset[str],
    spec: CountSketchSpec,
    share: Share,
    budget: Budget,
    account: Account,
    caveat: str | None,
) -> PrivateCountSketch:
    """Charge what a share guarantees by itself, add its noise, and return it.

    Parameters
    ----------
    table, mass : numpy.ndarray, int
        A sketch's counters, and the bound on each of them.
    partials : frozenset of str
        The ids of the partials in it.
    spec : CountSketchSpec
        The sketch's spec.
    share : Share
        Among whom the noise is shared.
    budget : Budget
        That of the whole.
    account : Account
        Where to charge it.
    caveat : str or None
        What the release must say about its users.
    """
    (counters,) = spec.tables()
    law = OneShare(counters, spec.unit.neighbours, replace(share, party=None), budget)
    if mass * law.shared.finer > COUNTER_LIMIT:
        raise CounterOverflow("the counters are too large for the finer steps that such small shares of noise need.")
    permit = Permit.pay(spec, (law,), law.asked, account, note=f"share of counts {fingerprint_of(spec)}")
    name = random_id() if share.party is None else str(share.party)
    state = ShareState(table, name, public_names(partials))
    drawn = permit.draw_all(state, caveat=caveat)
    return PrivateCountSketch(spec, drawn)


def merge_releases(
    releases: Sequence[PrivateCountSketch], *, missing: int = 0, disjoint_users: bool = False
) -> PrivateCountSketch:
    """Merge the shares of several parties into one release.

    Parameters
    ----------
    releases : sequence of PrivateCountSketch
        One from each party, made with ``release(…, share=Share(parties=…, honest=…))``, all of one spec and budget.
    missing : int, optional
        How many parties may be missing. Any may have been an honest one, so the guarantee is worked out again from the
        honest ones that are sure to remain; where none is, the merge is refused.
    disjoint_users : bool, optional
        State that no user has records at two parties; needed where the unit is a user, because nobody can check it.

    Privacy
    -------
    The merged release has the (ε, δ) that all parties asked for, against whoever sees it but no single share, as long
    as the stated fraction of parties is honest: dishonest ones know their own noise and can take it off. A sum of
    rounded shares is not exactly a rounded Gaussian; the difference, which
    :mod:`~dpsketch.laws.shares` bounds, is charged to δ. An attacker who sees a share by itself has what that
    share guarantees, which is less.

    Examples
    --------
    >>> import dpsketch as dps
    >>> from dpsketch.laws.shares import Share
    >>> shares = []
    >>> for party in range(3):
    ...     sketch = dps.CountSketch(rows=5, width=64, unit=dps.per_record())
    ...     sketch.update(["tea"] * 500)
    ...     shares.append(sketch.release(epsilon=1.0, delta=1e-6, share=Share(3, honest=1.0, party=party)))
    >>> merged = merge_releases(shares)
    >>> merged.guarantee.epsilon, shares[0].guarantee.epsilon > 1.5
    (1.0, True)
    """
    law, spec = _agreed(releases)
    missing = whole_number("missing", missing, low=0, high=law.share.parties)
    if spec.unit.level == "record" and disjoint_users:
        raise InvalidInput("disjoint_users= goes with unit=dps.per_user(max_keys=…): these releases protect records.")
    if spec.unit.level == "user" and not disjoint_users:
        raise ReleaseRefused(
            "a user with records at two parties would be counted, and exposed, twice. If every user is at one party "
            "only, say disjoint_users=True."
        )
    _refuse_missing(law.share, len(releases), missing)
    merged = MergedShares(law.table, law.neighbours, law.share, law.whole, len(releases))
    holds = all(release.guarantee.holds for release in releases)
    receipt = Receipt(merged.asked, (merged,), None, holds)
    table = _summed(releases, law.shared.finer)
    return PrivateCountSketch(spec, Drawn.of(spec, (receipt,), {COUNTERS: Part(merged, {"table": table})}))


def _agreed(releases: Sequence[PrivateCountSketch]) -> tuple[OneShare, CountSketchSpec]:
    """Return the law and the spec that all shares have in common, or refuse."""
    laws = [release.law for release in releases]
    known = [law for law in laws if isinstance(law, OneShare)]
    if not known or len(known) < len(laws):
        raise ReleaseRefused(
            "merge_releases merges shares, made with release(…, share=Share(…)). Releases with full noise of their own "
            "are added with +."
        )
    key_type = next((release.spec.key_type for release in releases if release.spec.key_type), None)
    specs = [replace(release.spec, key_type=release.spec.key_type or key_type) for release in releases]
    for spec in specs:
        refuse_mismatch(specs[0], spec)
    if any(law != known[0] for law in known):
        raise SpecMismatch(
            "cannot merge: the shares differ in their budget, their number of parties or of honest ones."
        )
    if len({release.party for release in releases}) < len(releases):
        raise ReleaseRefused("one party's share was given twice; its records would count twice. Give one a party.")
    named = [name for release in releases for name in set(release.partials)]
    if len(set(named)) < len(named):
        raise ReleaseRefused(
            "one sketch is in two of the shares, by itself or merged into others; each of its records would count, and "
            "show, twice. Each party releases one share of records that no other party has."
        )
    return known[0], specs[0]


def _refuse_missing(share: Share, present: int, missing: int) -> None:
    absent = share.parties - present
    if absent < 0:
        raise ReleaseRefused(f"{present} shares were given, more than the {share.parties} parties they speak of.")
    honest = share.honest_parties
    if absent >= honest:
        raise ReleaseRefused(
            f"{absent} of {share.parties} shares are missing, and only {honest} parties are sure to be honest: maybe "
            "none of them is left, and nothing could be promised."
        )
    if absent > missing:
        raise ReleaseRefused(
            f"{absent} of {share.parties} shares are missing, and with them their noise. Wait for them, or say "
            f"missing={absent} to merge the others with a weaker guarantee."
        )


def _summed(releases: Sequence[PrivateCountSketch], finer: int) -> Table:
    """Return the sum of the tables, rounded to the sketch's own grid."""
    if sum(largest_size(release.table) for release in releases) > COUNTER_LIMIT:
        raise CounterOverflow("the sum of the shares' counters would pass what 64 bits hold.")
    total = np.zeros(releases[0].table.shape, dtype=np.int64)
    for release in releases:
        total += release.table
    rounded: Table = (total + finer // 2) // finer
    return rounded
