"""The secret that a moment sketch's variates come from: drawn once, used for one release, overwritten after it."""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt

from dpsketch._compiled.chacha import LANES, chacha20_blocks
from dpsketch._compiled.moment import project
from dpsketch.errors import FileRefused, ReleaseRefused
from dpsketch.noise import noise_is_for_tests, random_words
from dpsketch.processes import OneProcess

__all__ = ["Secret"]

# Nonces of the projection begin with 0 (see the kernel), that of the check with 1.
_CHECK_DOMAIN = 1


class Secret(OneProcess):
    """A 256-bit key of ChaCha20.

    Never printed, pickled or written by itself. :meth:`destroy` overwrites it; copies that the interpreter made on the
    way from the operating system are freed, but cannot be overwritten.
    """

    def __init__(self, words: npt.NDArray[np.uint32], *, for_tests: bool) -> None:
        self._words: npt.NDArray[np.uint32] | None = words
        self._for_tests = for_tests

    @classmethod
    def draw(cls) -> Self:
        """Draw a new secret from the operating system."""
        return cls(random_words(4).view(np.uint32), for_tests=noise_is_for_tests())

    @classmethod
    def from_stored(cls, words: object, *, for_tests: bool) -> Self:
        """Rebuild a secret from :meth:`reveal_for_sensitive_file`."""
        if not isinstance(words, np.ndarray) or words.dtype != np.uint32 or words.shape != (8,):
            raise FileRefused("the file's secret is not one that dpsketch writes.")
        return cls(words.copy(), for_tests=for_tests)

    @property
    def for_tests(self) -> bool:
        """Whether it came from a seeded source, so that it hides nothing."""
        return self._for_tests

    def __repr__(self) -> str:
        return "<Secret, destroyed>" if self._words is None else "<Secret>"

    def reveal_for_sensitive_file(self) -> npt.NDArray[np.uint32]:
        """Return a copy of the key, for a file inside the trust boundary."""
        return self._key().copy()

    def check(self) -> str:
        """Return 16 hexadecimal digits that tell whether two secrets are the same, and nothing else about them."""
        inputs, words = np.zeros(4 * LANES, np.uint32), np.empty(16 * LANES, np.uint32)
        inputs[LANES : 2 * LANES] = _CHECK_DOMAIN
        chacha20_blocks(self._key(), inputs, words)
        return f"{int(words[0]):08x}{int(words[LANES]):08x}"

    def add(
        self,
        sums: npt.NDArray[np.float64],
        fingerprints: npt.NDArray[np.uint64],
        weights: npt.NDArray[np.float64],
        p: float,
    ) -> None:
        """Add each key's variates, times its weight, to the sums."""
        project(sums, self._key(), fingerprints, weights, p)

    def destroy(self) -> None:
        """Overwrite the key."""
        if self._words is not None:
            self._words[:] = 0
            self._words = None

    def _key(self) -> npt.NDArray[np.uint32]:
        self._refuse_copy()
        if self._words is None:
            raise ReleaseRefused("this sketch's secret has been destroyed. Start a new sketch.")
        return self._words
