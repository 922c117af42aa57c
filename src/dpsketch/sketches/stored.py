"""Sensitive sketches whose records are rows of a store: a memory limit, merging, and files."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Self

from dpsketch import files
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.hashing import KeyType
from dpsketch.sketches.sketch import ReleaseT, Sketch, SpecT
from dpsketch.sketches.store import Limit, Store

__all__ = ["StoredSketch"]


class StoredSketch(Sketch[SpecT, ReleaseT]):
    """A sensitive sketch that keeps its records as rows, in memory or on disk."""

    _store: Store

    def _bound_memory(self, memory_limit: str | None, temp_directory: str | os.PathLike[str] | None) -> None:
        """Have rows beyond a limit go to disk."""
        if memory_limit is not None:
            self._store.limit = Limit.of(memory_limit, None if temp_directory is None else os.fspath(temp_directory))
        elif temp_directory is not None:
            raise InvalidInput("temp_directory= goes with memory_limit=: without it nothing goes to disk.")

    def bound_as(self, other: StoredSketch[Any, Any]) -> None:
        """Take the memory limit of another sketch, and the folder beyond it."""
        self._store.limit = other._store.limit

    def empty_like(self) -> Self:
        """Start an empty sketch that will merge with this one, under the same memory limit."""
        sketch = super().empty_like()
        sketch.bound_as(self)
        return sketch

    def _absorb(self, other: Self) -> None:
        self._store.merge(other._store)

    def _to_document(self) -> files.Document:
        header, arrays = self._store.to_document()
        document = super()._to_document()
        return replace(document, header={**document.header, **header}, arrays={**document.arrays, **arrays})

    def _restore(self, document: files.Document) -> None:
        self._mass = max(self._mass, self._store.restore(document.header, document.arrays))
        stated: KeyType | None = getattr(self._spec, "key_type", None)
        if self._store.key_type not in (None, stated or self._store.key_type):
            raise FileRefused("the file's keys are of another type than its spec states.")
