"""Who a key is: secretly keyed identities of 128 bits, and their places in a table.

An identity is two words. An integer is itself, with a second word of 0. A text of at most 15 bytes is itself too: eight
bytes in the first word, seven in the second, whose last byte is the length. Any longer text is its SipHash-2-4 of 128
bits (Aumasson and Bernstein, INDOCRYPT 2012; the longer output is that of the authors' reference code) with the last
bit set, which no other identity has. So integers and short texts never collide, and of two long texts nobody can say
without the key whether they do: 127 bits are left.

The *place* of an identity in the table is uniform for whoever does not know the key: of a long text it is the first
word, of all else that word's and the second's SipHash-2-4 of 64 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import kernel, part, plain_kernel
from dpsketch._compiled.xxh64 import load8
from dpsketch.arrays import Integers, Words

__all__ = ["HASHED", "SHORT", "identify_integers", "identify_texts", "place_of", "places_of"]

Bytes = npt.NDArray[np.uint8]

SHORT = 15  # bytes of a text that is its own identity
HASHED = np.uint64(2**63)

U0, U8, U13, U16, U17 = (np.uint64(bits) for bits in (0, 8, 13, 16, 17))
U21, U32, U56, U64 = (np.uint64(bits) for bits in (21, 32, 56, 64))
ALL = np.uint64(2**64 - 1)
# SipHash's constants: "somepseudorandomlygeneratedbytes", and the marks of its two outputs.
S0 = np.uint64(0x736F6D6570736575)
S1 = np.uint64(0x646F72616E646F6D)
S2 = np.uint64(0x6C7967656E657261)
S3 = np.uint64(0x7465646279746573)
SHORT_END, LONG_END, SECOND = np.uint64(0xFF), np.uint64(0xEE), np.uint64(0xDD)
# So many of eight bytes, from the first on.
FIRST_BYTES = np.array([2 ** (8 * n) - 1 for n in range(9)], np.uint64)
# Texts a piece without the compiler, and about how long one takes there, eight bytes of a long one, and a step that all
# long ones take together: the longest takes one for eight bytes.
PIECE = 16_384
KEY_SECONDS = 250e-9
WORD_SECONDS = 80e-9
TURN_SECONDS = 100e-6


@part
def _rotate(x: Any, bits: np.uint64) -> Any:
    return (x << bits) | (x >> (U64 - bits))


@part
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> tuple[Any, Any, Any, Any]:
    v0 = v0 + v1
    v1 = _rotate(v1, U13) ^ v0
    v0 = _rotate(v0, U32)
    v2 = v2 + v3
    v3 = _rotate(v3, U16) ^ v2
    v0 = v0 + v3
    v3 = _rotate(v3, U21) ^ v0
    v2 = v2 + v1
    v1 = _rotate(v1, U17) ^ v2
    v2 = _rotate(v2, U32)
    return v0, v1, v2, v3


@part
def _absorb(v0: Any, v1: Any, v2: Any, v3: Any, word: Any) -> tuple[Any, Any, Any, Any]:
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ word, v1, v2, v3


@part
def _finish(v0: Any, v1: Any, v2: Any, v3: Any) -> tuple[Any, Any, Any, Any]:
    for _ in range(4):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0, v1, v2, v3


@kernel
def _tail(data: Bytes, start: int, stop: int) -> np.uint64:
    """Return fewer than eight bytes as a little-endian word."""
    rest = stop - start
    if rest == 0:
        return U0
    if start + 8 <= len(data):
        return load8(data, start) & (ALL >> (U64 - U8 * np.uint64(rest)))
    word = U0
    for i in range(rest):
        word |= np.uint64(data[start + i]) << (U8 * np.uint64(i))
    return word


@kernel
def _siphash(data: Bytes, start: int, stop: int, k0: np.uint64, k1: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return SipHash-2-4 of 128 bits of ``data[start:stop]``."""
    v0, v1, v2, v3 = k0 ^ S0, k1 ^ S1 ^ LONG_END, k0 ^ S2, k1 ^ S3
    last = np.uint64(stop - start) << U56
    while stop - start >= 8:
        v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, load8(data, start))
        start += 8
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, last | _tail(data, start, stop))
    v0, v1, v2, v3 = _finish(v0, v1, v2 ^ LONG_END, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v0, v1, v2, v3 = _finish(v0, v1 ^ SECOND, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


@kernel
def place_of(low: np.uint64, high: np.uint64, k0: np.uint64, k1: np.uint64) -> Any:
    """Return the place of an identity: SipHash-2-4 of 64 bits of its sixteen bytes, unless it is a hash already."""
    if high & HASHED:
        return low
    v0, v1, v2, v3 = k0 ^ S0, k1 ^ S1, k0 ^ S2, k1 ^ S3
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, low)
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, high)
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, U16 << U56)
    v0, v1, v2, v3 = _finish(v0, v1, v2 ^ SHORT_END, v3)
    return v0 ^ v1 ^ v2 ^ v3


def places_of(low: Words, high: Words, secret: Words) -> Words:
    """Return the places of identities, as :func:`place_of` does, without the compiler."""
    k0, k1 = secret[0], secret[1]
    v0, v1, v2, v3 = _absorb(k0 ^ S0, k1 ^ S1, k0 ^ S2, k1 ^ S3, low)
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, high)
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, U16 << U56)
    v0, v1, v2, v3 = _finish(v0, v1, v2 ^ SHORT_END, v3)
    return np.where(high & HASHED, low, v0 ^ v1 ^ v2 ^ v3)


def _siphashes(words: Words, starts: Integers, lengths: Integers, secret: Words) -> tuple[Words, Words]:
    """Return what :func:`_siphash` does of many texts; ``words`` begin at every byte."""
    k0, k1 = secret[0], secret[1]
    begun = (k0 ^ S0, k1 ^ S1 ^ LONG_END, k0 ^ S2, k1 ^ S3)
    state = np.repeat(np.array(begun)[:, np.newaxis], len(starts), axis=1)
    for step in range(int(lengths.max(initial=0)) // 8):
        at = np.flatnonzero(lengths >= 8 * (step + 1))
        v0, v1, v2, v3 = state[:, at]
        state[:, at] = _absorb(v0, v1, v2, v3, words[starts[at] + 8 * step])
    rest = lengths & 7
    tail = words[starts + lengths - rest] & FIRST_BYTES[rest]
    v0, v1, v2, v3 = state
    v0, v1, v2, v3 = _absorb(v0, v1, v2, v3, (lengths.astype(np.uint64) << U56) | tail)
    v0, v1, v2, v3 = _finish(v0, v1, v2 ^ LONG_END, v3)
    low = v0 ^ v1 ^ v2 ^ v3
    v0, v1, v2, v3 = _finish(v0, v1 ^ SECOND, v2, v3)
    return low, v0 ^ v1 ^ v2 ^ v3


def _identify_texts(data: Bytes, edges: Integers, secret: Words, ids: Words, places: Words) -> None:
    for first in range(0, len(places), PIECE):
        ends = edges[first : first + PIECE + 1].astype(np.int64)
        # Sixteen bytes more, so that a word may begin at every byte and after the last one.
        padded = np.append(data[ends[0] : ends[-1]], np.zeros(16, np.uint8))
        words = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))
        starts, lengths = ends[:-1] - ends[0], np.diff(ends)
        head = np.minimum(lengths, 8)
        low = words[starts] & FIRST_BYTES[head]
        high = words[starts + head] & FIRST_BYTES[np.minimum(lengths - head, 7)]
        high |= lengths.astype(np.uint64) << U56
        long = np.flatnonzero(lengths > SHORT)
        low[long], hashed = _siphashes(words, starts[long], lengths[long], secret)
        high[long] = hashed | HASHED
        ids[first : first + PIECE, 0] = low
        ids[first : first + PIECE, 1] = high
        places[first : first + PIECE] = places_of(low, high, secret)


def _identify_integers(words: Words, secret: Words, ids: Words, places: Words) -> None:
    ids[:, 0] = words
    ids[:, 1] = U0
    for first in range(0, len(places), PIECE):
        low = words[first : first + PIECE]
        places[first : first + PIECE] = places_of(low, np.zeros(len(low), np.uint64), secret)


def _text_seconds(edges: Integers) -> float:
    if not len(edges):
        return 0.0
    turns = int(np.diff(edges).max(initial=0)) // 8
    return KEY_SECONDS * len(edges) + WORD_SECONDS / 8 * float(edges[-1] - edges[0]) + TURN_SECONDS * turns


@plain_kernel(lambda data, edges, secret, ids, places: _text_seconds(edges), _identify_texts)
def identify_texts(data: Bytes, edges: Integers, secret: Words, ids: Words, places: Words) -> None:
    """Fill in the identity and the place of each text ``data[edges[i]:edges[i + 1]]``."""
    k0, k1 = secret[0], secret[1]
    for i in range(len(places)):
        start, stop = edges[i], edges[i + 1]
        if stop - start > SHORT:
            low, high = _siphash(data, start, stop, k0, k1)
            high |= HASHED
        else:
            high = np.uint64(stop - start) << U56
            if stop - start >= 8:
                low = load8(data, start)
                high |= _tail(data, start + 8, stop)
            else:
                low = _tail(data, start, stop)
        ids[i, 0] = low
        ids[i, 1] = high
        places[i] = place_of(low, high, k0, k1)


@plain_kernel(lambda words, secret, ids, places: KEY_SECONDS * len(places), _identify_integers)
def identify_integers(words: Words, secret: Words, ids: Words, places: Words) -> None:
    """Fill in the identity and the place of each integer."""
    k0, k1 = secret[0], secret[1]
    for i in range(len(places)):
        ids[i, 0] = words[i]
        ids[i, 1] = U0
        places[i] = place_of(words[i], U0, k0, k1)
