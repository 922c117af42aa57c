"""Texts that an attacker would choose."""

from __future__ import annotations

P1, P2, MASK = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 2**64 - 1


def colliding_texts(count: int) -> list[bytes]:
    """Different texts of 64 bytes with one XXH64: a change in the first stripe is undone by the second."""

    def turned(value: int) -> int:
        value &= MASK
        return ((value << 31) | (value >> 33)) & MASK

    lane = (42 + P1 + P2) & MASK
    inverse = pow(P2, -1, 2**64)
    base = turned(lane) * P1
    found = []
    for first in range(count):
        state = turned(lane + first * P2) * P1
        second = ((base - state) * inverse) & MASK
        found.append(first.to_bytes(8, "little") + bytes(24) + second.to_bytes(8, "little") + bytes(24))
    return found
