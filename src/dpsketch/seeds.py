"""Against crafted keys: a seed nobody knew beforehand, and keys hashed under a secret of the data holder.

Whoever can put records into a stream and knows a sketch's seed can look for keys that share cells with a victim's key
and push its estimate wherever they like. That is no matter of privacy, which holds for any hash function, but of
accuracy. Two things stop it, both by what the attacker does not know while records still come in:

* ``seed=random_seed()`` instead of the fixed default. The seed is published with the release, when it is too late.
  Partials share it through their spec.
* The 64-bit fingerprint of a *text* key does not depend on the seed, and XXH64 is no cryptographic hash: two texts with
  one fingerprint are easily made, and count as one key under every seed. (Integers never collide: on eight bytes XXH64
  is one to one.) :func:`keyed` hashes keys with BLAKE2b under a secret key first. Use it when counting and when asking;
  publish the key with the release, or keep it and be the only one who can ask.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa

from dpsketch.errors import InvalidInput
from dpsketch.hashing import key_type_of, to_arrow
from dpsketch.noise import random_bytes, random_words

__all__ = ["keyed", "random_key", "random_seed"]

_LEAST_KEY = 16


def random_seed() -> int:
    """Return a seed for hash functions that nobody can have known, from the operating system's randomness."""
    return int(random_words(1)[0])


def random_key() -> bytes:
    """Return a secret key for :func:`keyed`, of 32 bytes."""
    return random_bytes(32)


def keyed(keys: Any, key: bytes) -> pa.UInt64Array:
    """Return keys as 64-bit integers that nobody without ``key`` can make collide.

    Parameters
    ----------
    keys : list, NumPy, Arrow, pandas or polars column
        Integers or text. Nulls stay nulls.
    key : bytes
        16 to 64 bytes, such as :func:`random_key` draws.

    Accuracy
    --------
    Two of n distinct keys collide with probability about n²/2⁶⁵, as for any 64-bit hash. About a microsecond for each
    distinct key.

    Examples
    --------
    >>> import dpsketch as dps
    >>> secret = random_key()
    >>> sketch = dps.CountSketch(rows=5, width=64, unit=dps.per_record(), seed=random_seed())
    >>> sketch.update(keyed(["tea", "milk", "tea"], secret))
    >>> estimates = sketch.release(epsilon=1.0, delta=1e-6).estimate(keyed(["tea"], secret))
    """
    if not isinstance(key, bytes) or not _LEAST_KEY <= len(key) <= hashlib.blake2b.MAX_KEY_SIZE:
        raise InvalidInput("key must be 16 to 64 secret bytes; random_key() draws them.")
    column = to_arrow(keys)
    kind = key_type_of(column.type)
    if kind is None:
        return pa.nulls(len(column), pa.uint64())
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    column = column.combine_chunks()
    distinct = column.dictionary_encode() if not _is_view(column.type) else _plain(column).dictionary_encode()
    hashed = [_hashed(value, kind, key) for value in distinct.dictionary.to_pylist()]
    return pa.array(np.array(hashed, np.uint64)).take(distinct.indices)


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _plain(column: pa.Array) -> pa.Array:
    return column.cast(pa.large_binary() if pa.types.is_binary_view(column.type) else pa.large_string())


def _hashed(value: Any, kind: str, key: bytes) -> int:
    if kind == "int":
        data = (int(value) % 2**64).to_bytes(8, "little")
    else:
        data = value.encode() if isinstance(value, str) else bytes(value)
    # Integers and texts of the same bytes are different keys.
    digest = hashlib.blake2b(data, digest_size=8, key=key, person=kind.encode())
    return int.from_bytes(digest.digest(), "little")
