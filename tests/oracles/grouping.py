"""A slow, obvious SipHash-2-4 on plain integers, and the identities of keys."""

from __future__ import annotations

MASK = 2**64 - 1


def rotate(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & MASK


def sip_rounds(v: list[int], count: int) -> None:
    for _ in range(count):
        v[0] = (v[0] + v[1]) & MASK
        v[2] = (v[2] + v[3]) & MASK
        v[1] = rotate(v[1], 13) ^ v[0]
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] = rotate(v[0], 32)
        v[2] = (v[2] + v[1]) & MASK
        v[0] = (v[0] + v[3]) & MASK
        v[1] = rotate(v[1], 17) ^ v[2]
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] = rotate(v[2], 32)


def siphash(data: bytes, key: bytes, size: int) -> bytes:
    """Return SipHash-2-4 with an output of 8 or 16 bytes."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    text = b"somepseudorandomlygeneratedbytes"
    v = [int.from_bytes(text[i : i + 8], "big") ^ k for i, k in zip(range(0, 32, 8), (k0, k1, k0, k1), strict=True)]
    if size == 16:
        v[1] ^= 0xEE
    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        sip_rounds(v, 2)
        v[0] ^= word
    v[2] ^= 0xEE if size == 16 else 0xFF
    sip_rounds(v, 4)
    out = (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")
    if size == 16:
        v[1] ^= 0xDD
        sip_rounds(v, 4)
        out += (v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little")
    return out


def identity(key: int | bytes, secret: bytes) -> tuple[int, int]:
    """Return an identity and its place: an integer of 128 bits and one of 64."""
    if isinstance(key, int):
        name = (key & MASK).to_bytes(16, "little")
    elif len(key) <= 15:
        name = key.ljust(15, b"\0") + bytes([len(key)])
    else:
        name = siphash(key, secret, 16)
        return int.from_bytes(name, "little") | 1 << 127, int.from_bytes(name[:8], "little")
    return int.from_bytes(name, "little"), int.from_bytes(siphash(name, secret, 8), "little")
