"""Slow, obvious votes in buckets: one record at a time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from oracles.local import bucket

bucket_of = bucket


@dataclass
class Bucket:
    """A key, the votes it leads by, and all records that came."""

    key: Hashable = None
    votes: int = 0
    load: int = 0

    def vote(self, key: Hashable) -> None:
        self.load += 1
        if self.votes == 0:
            self.key, self.votes = key, 1
        elif key == self.key:
            self.votes += 1
        else:
            self.votes -= 1
            self.key = self.key if self.votes else None

    def merge(self, other: Bucket) -> None:
        self.load += other.load
        if other.votes and self.votes and self.key == other.key:
            self.votes += other.votes
            return
        if other.votes > self.votes:
            self.key = other.key
        self.votes = abs(self.votes - other.votes)
        self.key = self.key if self.votes else None

    @classmethod
    def of(cls, keys: Iterable[Hashable]) -> Bucket:
        bucket = cls()
        for key in keys:
            bucket.vote(key)
        return bucket
