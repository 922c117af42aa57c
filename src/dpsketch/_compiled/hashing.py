"""XXH64 over integers and over the buffers of an Arrow string column, and the finaliser of SplitMix64.

XXH64 is Yann Collet's; its specification and test values are published with the xxHash library. The tests compare every
code path with that library. Results go to an array the caller brings: NumPy asks the system for large pages and numba
does not, which makes a fourfold difference for ten million integers.

The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014; the constants are those of Stafford's variant 13) moves
every bit of a word by every other, and is one-to-one: different words stay different. It is for words in kernels and
for arrays of them in NumPy.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import compiled_as, jitable, kernel
from dpsketch.arrays import Words

__all__ = ["hash_integers", "hash_one", "hash_ranges", "hash_slices", "load8", "mix", "mix_upper"]

Bytes = npt.NDArray[np.uint8]
Word = TypeVar("Word", np.uint64, Words)

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)
M1 = np.uint64(0xBF58476D1CE4E5B9)
M2 = np.uint64(0x94D049BB133111EB)
U0, U1, U7, U8, U11, U12, U18, U23 = (np.uint64(bits) for bits in (0, 1, 7, 8, 11, 12, 18, 23))
U27, U29, U30, U31, U32, U33, U64 = (np.uint64(bits) for bits in (27, 29, 30, 31, 32, 33, 64))


@jitable
def mix_upper(z: Word) -> Word:
    """Mix the bits of a word, but for the last shift: the upper half is that of :func:`mix`, at a step less."""
    z = (z ^ (z >> U30)) * M1
    return (z ^ (z >> U27)) * M2


@jitable
def mix(z: Word) -> Word:
    """Mix the bits of a word."""
    z = mix_upper(z)
    return z ^ (z >> U31)


def _load(bits: int) -> Any:
    """Make a load of one instruction, whatever the alignment: numba by itself would read and join single bytes."""
    from llvmlite import ir
    from numba import njit, types
    from numba.extending import intrinsic

    @intrinsic
    def load(typing_context: Any, data: Any, start: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_helper(builder, signature.args[0], arguments[0])
            address = builder.gep(array.data, [arguments[1]])
            word = builder.load(builder.bitcast(address, ir.IntType(bits).as_pointer()), align=1, typ=ir.IntType(bits))
            return word if bits == 64 else builder.zext(word, ir.IntType(64))

        return types.uint64(data, types.intp), generate

    one: Any = load

    @njit(nogil=True)
    def loaded(data: Any, start: Any) -> Any:
        return one(data, start)

    return loaded


@compiled_as(lambda: _load(64))
def load8(data: Bytes, start: int) -> np.uint64:
    """Return the eight bytes from ``start`` on as a little-endian integer."""
    raise NotImplementedError


@compiled_as(lambda: _load(32))
def load4(data: Bytes, start: int) -> np.uint64:
    """Return the four bytes from ``start`` on as a little-endian integer."""
    raise NotImplementedError


@kernel
def _rotate(x: np.uint64, bits: np.uint64) -> np.uint64:
    return (x << bits) | (x >> (U64 - bits))


@kernel
def _round(accumulator: np.uint64, word: np.uint64) -> np.uint64:
    return _rotate(accumulator + word * P2, U31) * P1


@kernel
def _avalanche(h: np.uint64) -> np.uint64:
    h = (h ^ (h >> U33)) * P2
    h = (h ^ (h >> U29)) * P3
    return h ^ (h >> U32)


@kernel
def hash_one(data: Bytes, start: int, stop: int, seed: np.uint64) -> np.uint64:
    """Return XXH64 of ``data[start:stop]``."""
    length = np.uint64(stop - start)
    if stop - start >= 32:
        v1 = seed + P1 + P2
        v2 = seed + P2
        v3 = seed
        v4 = seed - P1
        while stop - start >= 32:
            v1 = _round(v1, load8(data, start))
            v2 = _round(v2, load8(data, start + 8))
            v3 = _round(v3, load8(data, start + 16))
            v4 = _round(v4, load8(data, start + 24))
            start += 32
        h = _rotate(v1, U1) + _rotate(v2, U7) + _rotate(v3, U12) + _rotate(v4, U18)
        h = (h ^ _round(U0, v1)) * P1 + P4
        h = (h ^ _round(U0, v2)) * P1 + P4
        h = (h ^ _round(U0, v3)) * P1 + P4
        h = (h ^ _round(U0, v4)) * P1 + P4
    else:
        h = seed + P5
    h += length
    while stop - start >= 8:
        h = _rotate(h ^ _round(U0, load8(data, start)), U27) * P1 + P4
        start += 8
    if stop - start >= 4:
        h = _rotate(h ^ (load4(data, start) * P1), U23) * P2 + P3
        start += 4
    while start < stop:
        h = _rotate(h ^ (np.uint64(data[start]) * P5), U11) * P1
        start += 1
    return _avalanche(h)


@kernel
def hash_slices(
    data: Bytes, offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64], seed: np.uint64, hashes: Words
) -> None:
    """Fill in ``hashes[i]`` with XXH64 of ``data[offsets[i]:offsets[i + 1]]``."""
    for i in range(len(hashes)):
        hashes[i] = hash_one(data, int(offsets[i]), int(offsets[i + 1]), seed)


@kernel
def hash_ranges(
    data: Bytes, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64], seed: np.uint64, hashes: Words
) -> None:
    """Fill in ``hashes[i]`` with XXH64 of ``data[starts[i]:stops[i]]``; ranges may overlap."""
    for i in range(len(hashes)):
        hashes[i] = hash_one(data, starts[i], stops[i], seed)


@kernel
def hash_integers(keys: Words, seed: np.uint64, hashes: Words) -> None:
    """Fill in ``hashes[i]`` with XXH64 of the eight little-endian bytes of ``keys[i]``."""
    start = seed + P5 + U8
    for i in range(len(hashes)):
        hashes[i] = _avalanche(_rotate(start ^ _round(U0, keys[i]), U27) * P1 + P4)
