"""Heavy hitters among strings that nobody listed: prefix extension over subset hashing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import pdtrc

from dpsketch.errors import InvalidInput
from dpsketch.hashing import fingerprint
from dpsketch.local.hashed import HashedProtocol
from dpsketch.local.intervals import Frequencies, from_sampled_support, share_of, support_variance
from dpsketch.local.protocol import Holders, People, list_column, offsets_of
from dpsketch.local.wire import Columns, Field
from dpsketch.noise import random_below
from dpsketch.numbers import probability, real_number, whole_number
from dpsketch.results import Estimates

if TYPE_CHECKING:
    from dpsketch.local.collector import Collector

__all__ = ["PrefixHeavyHitters"]

_FIRST_CANDIDATES = 1 << 16
_EXTENSIONS = 1 << 11
_PAD = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Strings(Holders):
    """Everyone's strings, padded to one length. Sensitive."""

    letters: npt.NDArray[np.uint8] = field(repr=False)


@dataclass(frozen=True)
class PrefixHeavyHitters(HashedProtocol):
    """Everyone reports prefixes of their strings at one random length; the collector grows the frequent ones.

    Parameters
    ----------
    epsilon : float
        What one report may reveal, between 0.001 and 20.
    max_items : int
        L, as for :class:`SubsetHashing`.
    length : int
        Bytes of a string (in UTF-8) that are reported; longer strings are cut, and found as their beginnings.
    alphabet : str, optional
        The characters that strings may have, all of them ASCII. A smaller alphabet makes fewer, larger steps, hence
        more reports a step. Strings with other characters are left out on the device. All bytes but 0 if not given.
    width, seeds, seed : int, optional
        As for :class:`SubsetHashing`.

    Privacy
    -------
    ε-locally differentially private for any two sets of strings: the length is drawn without looking at the strings,
    and the report is that of :class:`SubsetHashing` about their prefixes of that length.

    Accuracy
    --------
    A string survives where each of its prefixes stands out of the noise of n/J reports, J the number of lengths: those
    held by a share above about z·√(J·Var₁/n), Var₁ the variance of :class:`SubsetHashing` for one report and z near 4
    to 5.

    References
    ----------
    Wang, Li and Jha, *Locally differentially private heavy hitter identification* (TDSC 2019), the prefix extending
    method.

    Examples
    --------
    >>> protocol = PrefixHeavyHitters(epsilon=6.0, max_items=1, length=4, alphabet="aekmrt")
    >>> people = [["tea"]] * 3000 + [["mate"]] * 2000
    >>> collector = protocol.collector().add(protocol.report(people))
    >>> protocol.find(collector, threshold=0.2).key
    ['tea', 'mate']
    """

    name: ClassVar[str] = "prefix-heavy-hitters"
    ranges: ClassVar = {"max_items": (1, 2**16), "length": (1, 255), **HashedProtocol.ranges}

    max_items: int
    length: int
    alphabet: str | None = None
    width: int | None = None
    seeds: int = 1024
    seed: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.key_type == "int":
            raise InvalidInput("prefix extension finds text; integer keys have no prefixes to grow.")
        if self.alphabet is not None:
            if not isinstance(self.alphabet, str) or not self.alphabet.isascii() or "\0" in self.alphabet:
                raise InvalidInput("alphabet is a string of ASCII characters other than the null character.")
            object.__setattr__(self, "alphabet", "".join(sorted(set(self.alphabet))))
        if len(self._symbols()) < 2:
            raise InvalidInput("alphabet must have at least one character.")

    def _symbols(self) -> list[int]:
        """Return what a byte may be: padding, or a character."""
        return [_PAD, *(range(1, 256) if self.alphabet is None else self.alphabet.encode())]

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths of prefixes that are reported about, rising."""
        symbols = len(self._symbols())
        first = step = 1
        while symbols ** (first + 1) <= _FIRST_CANDIDATES:
            first += 1
        while symbols ** (step + 1) <= _EXTENSIONS:
            step += 1
        return (*range(first, self.length, step), self.length)

    @property
    def cap(self) -> int:
        """L, as stated."""
        return self.max_items

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of a report: which length, then those of subset hashing."""
        return Field("level", 1, limit=len(self.lengths)), *super().fields

    @property
    def mechanism(self) -> str:
        """How a report is drawn."""
        return f"subset local hashing of prefixes of one random length out of {len(self.lengths)}"

    def read(self, sets: Any) -> _Strings:
        """Read everyone's strings."""
        offsets, values = list_column(sets)
        letters, kept = self._letters(values)
        return _Strings(offsets_of(kept)[offsets], letters[kept])

    def _letters(self, values: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
        """Return strings as rows of bytes, padded or cut; and which of them are strings over the alphabet."""
        column = _binary(values)
        starts = np.frombuffer(column.buffers()[1], np.int64, len(column) + 1, 8 * column.offset)
        data = np.frombuffer(column.buffers()[2] or b"\0", np.uint8)
        sizes = np.minimum(np.diff(starts), self.length)
        letters = np.zeros((len(column), self.length), np.uint8)
        for at in range(self.length):
            there = sizes > at
            letters[there, at] = data[starts[:-1][there] + at]
        allowed = np.zeros(256, np.bool_)
        allowed[self._symbols()] = True
        padding = np.arange(self.length) >= sizes[:, None]
        usual = (allowed[letters] & ((letters != _PAD) | padding)).all(axis=1)
        return letters, usual & column.is_valid().to_numpy(zero_copy_only=False)

    def randomise(self, people: _Strings) -> Columns:
        """Draw everyone's length, hash function and bucket."""
        level = random_below(len(self.lengths), len(people)).astype(np.uint8)
        seeds = np.zeros(len(people), np.uint16)
        buckets = np.zeros(len(people), np.uint32)
        owners = np.repeat(level, np.diff(people.offsets))
        for number, length in enumerate(self.lengths):
            prints = np.zeros(len(people.letters), np.uint64)
            there = owners == number
            prints[there] = _prints(people.letters[there, :length])
            chosen = level == number
            drawn = super().randomise(People(people.offsets, prints).take(chosen))
            seeds[chosen], buckets[chosen] = drawn["seed"], drawn["bucket"]
        return {"level": level, "seed": seeds, "bucket": buckets}

    def fingerprints(self, keys: Any) -> npt.NDArray[np.uint64]:
        """Return the fingerprints of whole strings."""
        letters, kept = self._letters(keys)
        if not bool(kept.all()):
            raise InvalidInput("a key to look up is null or has characters outside the alphabet.")
        return _prints(letters)

    def frequencies(
        self, tally: Any, users: int, fingerprints: npt.NDArray[np.uint64], confidence: float
    ) -> Frequencies:
        """Estimate the share of people who hold each whole string."""
        return self._at_level(tally, len(self.lengths) - 1, fingerprints, confidence)[0]

    def _at_level(
        self, tally: Any, level: int, fingerprints: npt.NDArray[np.uint64], confidence: float
    ) -> tuple[Frequencies, npt.NDArray[np.float64]]:
        """Estimate shares at one length; also return the chance of each count if nobody holds the prefix."""
        columns = tally.columns()
        there = columns["level"] == level
        part = {name: columns[name][there] for name in ("seed", "bucket")}
        reports = len(part["seed"])
        if reports == 0:
            raise InvalidInput("there are no reports about one of the lengths yet; collect more.")
        cells = self.cells(part)
        support, spread = self.supporters(cells, fingerprints), self.spread(cells)
        p_true, p_false = self.chances
        # P(Poisson ≥ count): for small counts its tail is heavier than the normal's. People who share a hash function
        # support a key together, in lots of about this size.
        lot = 1 + reports * spread / p_false
        by_chance = np.asarray(pdtrc((support - 1.0) / lot, reports * p_false / lot), np.float64)
        return from_sampled_support(support, reports, p_true, p_false, spread, confidence), by_chance

    def variance(self, frequency: float, users: int) -> float:
        """Predict the variance of the estimated share of a whole string, without what the pool adds."""
        frequency, users = share_of(frequency, users)
        one = support_variance(frequency, 1, *self.chances)
        return (one + frequency * (1 - frequency)) * len(self.lengths) / users

    def find(
        self, collector: Collector, *, threshold: float = 0.0, at_most: int = 64, confidence: float = 0.95
    ) -> Estimates:
        """Find the strings that many people hold.

        Parameters
        ----------
        collector : Collector
            Of this protocol's reports.
        threshold : float, optional
            Leave out what is estimated below this share. Without it, whatever stands out of the noise is returned.
        at_most : int, optional
            Prefixes kept after each step, and the most strings returned.
        confidence : float
            With this probability every interval covers; and no string that nobody holds is returned with, roughly, the
            same probability.

        Returns
        -------
        Estimates
            The strings found, most frequent first, with intervals for all of them at once.
        """
        if collector.protocol != self:
            raise InvalidInput("the collector is of another protocol.")
        at_most, threshold = whole_number("at_most", at_most, low=1, high=2**16), real_number("threshold", threshold)
        confidence = probability("confidence", confidence)
        missed = 1 - confidence
        kept = [b""]
        found = Frequencies(np.empty(0), np.empty(0), np.empty(0))
        for level, length in enumerate(self.lengths):
            candidates = self._extend(kept, length)
            prints = _prints(candidates)
            each = missed / max(1, len(prints))
            found, by_chance = self._at_level(collector.tally, level, prints, 1 - each)
            wanted = threshold if length == self.length else 0.6 * threshold
            stands_out = (found.low > 0) & (by_chance < each) & (found.value >= wanted)
            order = np.argsort(-found.value, kind="stable")
            order = order[stands_out[order]][:at_most]
            kept = [row.tobytes() for row in candidates[order]]
            found = Frequencies(found.value[order], found.low[order], found.high[order])
        strings = [key.rstrip(b"\0").decode(errors="replace") for key in kept]
        return Estimates(strings, found.value, found.low, found.high, confidence, self.counts)

    def _extend(self, kept: Sequence[bytes], length: int) -> npt.NDArray[np.uint8]:
        """Return every continuation of the kept prefixes to a length; after padding only padding follows."""
        rows: list[bytes] = []
        for prefix in kept:
            more = length - len(prefix)
            if prefix.endswith(b"\0"):
                rows.append(prefix + bytes(more))
            else:
                rows.extend(prefix + tail for tail in self._tails(more))
        return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), length)

    def _tails(self, more: int) -> list[bytes]:
        tails = map(bytes, product(self._symbols(), repeat=more))
        return [tail for tail in tails if _PAD not in tail.rstrip(b"\0")]


def _binary(values: Any) -> pa.LargeBinaryArray:
    """Return text as bytes; nothing that Arrow says about it may reach a message."""
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    column = None
    with suppress(pa.ArrowException, UnicodeError):
        column = values if isinstance(values, pa.Array) else pa.array(values)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
    if column is None or not (pa.types.is_null(column.type) or _is_text(column.type)):
        raise InvalidInput("prefix extension takes text keys.")
    return column.cast(pa.large_string()).cast(pa.large_binary())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _prints(letters: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    flat = np.ascontiguousarray(letters)
    column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(flat.shape[1]), len(flat), [None, pa.py_buffer(flat)])
    return fingerprint(column, "text").fingerprints
