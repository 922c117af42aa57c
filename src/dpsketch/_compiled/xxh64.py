"""XXH64 over integers and over the buffers of an Arrow string column.

The algorithm is Yann Collet's; its specification and test values are published with the xxHash library. The tests
compare every code path with that library. Results go to an array the caller brings: NumPy asks the system for large
pages and numba does not, which makes a fourfold difference for ten million integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.kernel import part, plain_kernel

__all__ = ["hash_integers", "hash_one", "hash_ranges", "hash_slices"]

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)
U1 = np.uint64(1)
U7 = np.uint64(7)
U8 = np.uint64(8)
U11 = np.uint64(11)
U12 = np.uint64(12)
U18 = np.uint64(18)
U23 = np.uint64(23)
U27 = np.uint64(27)
U29 = np.uint64(29)
U31 = np.uint64(31)
U32 = np.uint64(32)
U33 = np.uint64(33)
U64 = np.uint64(64)


# About how long it takes without the compiler: a call, a key, a step of eight bytes, and what a step costs once for all
# keys: the longest key has so many.
CALL_SECONDS = 50e-6
KEY_SECONDS = 40e-9
STEP_SECONDS = 15e-9
TURN_SECONDS = 20e-6
# Keys a piece without the compiler: what lies between two steps stays in the second-level cache.
PIECE = 16_384


def _load(bits: int) -> Any:
    """Make the one-instruction form of a load: numba by itself would read and join single bytes."""
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


def _load8(data: npt.NDArray[np.uint8], start: int) -> np.uint64:
    """Return the eight bytes from ``start`` on as a little-endian integer, whatever their alignment."""
    return np.uint64(int.from_bytes(data[start : start + 8].tobytes(), "little"))


def _load4(data: npt.NDArray[np.uint8], start: int) -> np.uint64:
    """Return the four bytes from ``start`` on as a little-endian integer, whatever their alignment."""
    return np.uint64(int.from_bytes(data[start : start + 4].tobytes(), "little"))


load8 = part(_load8, lambda: _load(64))
load4 = part(_load4, lambda: _load(32))


@part
def _rotate(x: Any, bits: np.uint64) -> Any:
    return (x << bits) | (x >> (U64 - bits))


@part
def _round(accumulator: Any, word: Any) -> Any:
    return _rotate(accumulator + word * P2, U31) * P1


@part
def _avalanche(h: Any) -> Any:
    h = (h ^ (h >> U33)) * P2
    h = (h ^ (h >> U29)) * P3
    return h ^ (h >> U32)


def _hash_ranges(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    stops: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    seed: np.uint64,
    hashes: npt.NDArray[np.uint64],
) -> None:
    """Hash without the compiler: a step is taken for all keys at once that are long enough for it."""
    # Overlapping words, one from each byte on.
    eights = np.ndarray(max(0, len(data) - 7), "<u8", np.ascontiguousarray(data), strides=(1,))
    fours = np.ndarray(max(0, len(data) - 3), "<u4", np.ascontiguousarray(data), strides=(1,))
    zero = np.uint64(0)
    for low in range(0, len(hashes), PIECE):
        start = starts[low : low + PIECE].astype(np.int64)
        stop = stops[low : low + PIECE].astype(np.int64)
        h = np.full(len(start), seed + P5)
        at = np.flatnonzero(stop - start >= 32)
        if len(at):
            place = start[at]
            lanes = np.repeat(np.array([[seed + P1 + P2], [seed + P2], [seed], [seed - P1]]), len(at), axis=1)
            going = np.arange(len(at))
            while len(going):
                words = eights[place[going] + np.arange(0, 32, 8)[:, np.newaxis]]
                lanes[:, going] = _round(lanes[:, going], words)
                place[going] += 32
                going = going[stop[at[going]] - place[going] >= 32]
            turned = [_rotate(lane, bits) for lane, bits in zip(lanes, (U1, U7, U12, U18), strict=True)]
            whole = turned[0] + turned[1] + turned[2] + turned[3]
            for lane in lanes:
                whole = (whole ^ _round(zero, lane)) * P1 + P4
            h[at] = whole
        h += (stop - start).astype(np.uint64)
        start[at] = place if len(at) else 0
        while len(at := np.flatnonzero(stop - start >= 8)):
            h[at] = _rotate(h[at] ^ _round(zero, eights[start[at]]), U27) * P1 + P4
            start[at] += 8
        at = np.flatnonzero(stop - start >= 4)
        h[at] = _rotate(h[at] ^ (fours[start[at]].astype(np.uint64) * P1), U23) * P2 + P3
        start[at] += 4
        while len(at := np.flatnonzero(stop > start)):
            h[at] = _rotate(h[at] ^ (data[start[at]].astype(np.uint64) * P5), U11) * P1
            start[at] += 1
        hashes[low : low + PIECE] = _avalanche(h)


def _hash_slices(
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    seed: np.uint64,
    hashes: npt.NDArray[np.uint64],
) -> None:
    _hash_ranges(data, offsets[:-1], offsets[1:], seed, hashes)


def _hash_integers(keys: npt.NDArray[np.uint64], seed: np.uint64, hashes: npt.NDArray[np.uint64]) -> None:
    for low in range(0, len(keys), PIECE):
        words = keys[low : low + PIECE]
        hashes[low : low + PIECE] = _avalanche(_rotate((seed + P5 + U8) ^ _round(np.uint64(0), words), U27) * P1 + P4)


def _seconds(keys: int, length: int, longest: int = 0) -> float:
    """Return about how long hashing takes without the compiler."""
    return CALL_SECONDS + KEY_SECONDS * keys + STEP_SECONDS * length / 8 + TURN_SECONDS * (longest // 32)


def _longest(starts: npt.NDArray[Any], stops: npt.NDArray[Any]) -> int:
    return int((stops - starts).max(initial=0))


@part
def hash_one(data: npt.NDArray[np.uint8], start: int, stop: int, seed: np.uint64) -> Any:
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
        h = (h ^ _round(np.uint64(0), v1)) * P1 + P4
        h = (h ^ _round(np.uint64(0), v2)) * P1 + P4
        h = (h ^ _round(np.uint64(0), v3)) * P1 + P4
        h = (h ^ _round(np.uint64(0), v4)) * P1 + P4
    else:
        h = seed + P5
    h += length
    while stop - start >= 8:
        h = _rotate(h ^ _round(np.uint64(0), load8(data, start)), U27) * P1 + P4
        start += 8
    if stop - start >= 4:
        h = _rotate(h ^ (load4(data, start) * P1), U23) * P2 + P3
        start += 4
    while start < stop:
        h = _rotate(h ^ (np.uint64(data[start]) * P5), U11) * P1
        start += 1
    return _avalanche(h)


@plain_kernel(
    lambda data, offsets, seed, hashes: _seconds(
        len(hashes), int(offsets[-1]) - int(offsets[0]), _longest(offsets[:-1], offsets[1:])
    ),
    _hash_slices,
)
def hash_slices(
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64],
    seed: np.uint64,
    hashes: npt.NDArray[np.uint64],
) -> None:
    """Fill in ``hashes[i]`` with XXH64 of ``data[offsets[i]:offsets[i + 1]]``."""
    for i in range(len(hashes)):
        hashes[i] = hash_one(data, int(offsets[i]), int(offsets[i + 1]), seed)


@plain_kernel(
    lambda data, starts, stops, seed, hashes: _seconds(
        len(hashes), int((stops - starts).sum()), _longest(starts, stops)
    ),
    _hash_ranges,
)
def hash_ranges(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
    seed: np.uint64,
    hashes: npt.NDArray[np.uint64],
) -> None:
    """Fill in ``hashes[i]`` with XXH64 of ``data[starts[i]:stops[i]]``; ranges may overlap."""
    for i in range(len(hashes)):
        hashes[i] = hash_one(data, starts[i], stops[i], seed)


@plain_kernel(lambda keys, seed, hashes: _seconds(0, 8 * len(keys)), _hash_integers)
def hash_integers(keys: npt.NDArray[np.uint64], seed: np.uint64, hashes: npt.NDArray[np.uint64]) -> None:
    """Fill in ``hashes[i]`` with XXH64 of the eight little-endian bytes of ``keys[i]``."""
    start = seed + P5 + U8
    for i in range(len(hashes)):
        hashes[i] = _avalanche(_rotate(start ^ _round(np.uint64(0), keys[i]), U27) * P1 + P4)
