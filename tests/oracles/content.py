"""Which keys of users count, in plain Python: of each user those with the least words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from dpsketch.laws.rounds import unit_weights
from oracles import hashing

__all__ = ["Pairs"]

_MASK = 2**64 - 1


@dataclass(frozen=True)
class Pairs:
    """What each user has of each key, by the keys themselves."""

    units: dict[Any, dict[Any, int]]

    def word(self, user: Any, key: Any, seed: int) -> int:
        """XXH64 of the seed and then, from there, of the pair's print; as a signed number."""
        prints = [hashing.fingerprint(each) for each in (user, key)]
        start = hashing.xxh64((seed & _MASK).to_bytes(8, "little"), 42)
        found = hashing.xxh64((prints[0] ^ prints[1]).to_bytes(8, "little"), start)
        return found - 2**64 if found >= 2**63 else found

    def chosen(self, user: Any, among: set[Any], room: int, seed: int) -> list[Any]:
        own = [key for key in self.units[user] if key in among]
        return sorted(own, key=lambda key: self.word(user, key, seed))[: max(room, 0)]

    def counts(self, among: set[Any], cap: int, seed: int) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for user, own in self.units.items():
            found.update({key: own[key] for key in self.chosen(user, among, cap, seed)})
        return found

    def rest(self, asked: set[Any], cap: int, seed: int) -> int:
        total = 0
        for user, own in self.units.items():
            room = cap - len(own.keys() & asked)
            total += sum(own[key] for key in self.chosen(user, own.keys() - asked, room, seed))
        return total

    def weights(self, known: set[Any], cap: int, seed: int) -> Counter[Any]:
        found: Counter[Any] = Counter()
        for user, own in self.units.items():
            chosen = self.chosen(user, own.keys() - known, cap, seed)
            found.update(dict.fromkeys(chosen, int(unit_weights(cap)[len(chosen)])))
        return found

    def held(self, asked: set[Any], seed: int) -> list[tuple[int, Any]]:
        return [
            (len(own.keys() & asked), self.chosen(user, asked, 1, seed)[0])
            for user, own in self.units.items()
            if own.keys() & asked
        ]
