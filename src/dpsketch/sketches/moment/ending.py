"""Sensitive sketches that end when they are released: what a secret protects, it protects once."""

from __future__ import annotations

from abc import abstractmethod
from os import PathLike
from typing import TYPE_CHECKING, Generic, TypeVar

from dpsketch import files
from dpsketch.core.account import Account
from dpsketch.privacy import Budget
from dpsketch.sketches.keyed import KeyedPartial
from dpsketch.sketches.moment.estimators import Estimator

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["EndingSketch"]

ReleaseT = TypeVar("ReleaseT")


class EndingSketch(KeyedPartial, Generic[ReleaseT]):
    """A sensitive sketch of one moment or of several. Its release ends it."""

    def release(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        estimator: Estimator = "mle",
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> ReleaseT:
        """Charge the budget, add the floor, and return the rounded estimate. The sketch ends: its secret is destroyed.

        Parameters
        ----------
        epsilon, delta : float
            The guarantee, of all moments together. δ = 0 is pure privacy, at a floor several times larger.
        rho : float
            A zero-concentrated guarantee instead.
        estimator : {"mle", "geometric", "harmonic", "fractional", "median"}
            How the scale is estimated; "mle" has the least error.
        ledger, dataset, part : Ledger or URL, str, str, optional
            Where to charge the release; charged before the floor is drawn.

        Privacy
        -------
        (ε, δ)-differential privacy for the spec's unit and neighbour relation: between neighbours F_p + floor changes
        by at most the ratio of the cost, and the loss of all coordinates together is computed exactly, rounded up.
        Several moments have independent secrets, so their losses add: the composed privacy loss distribution is within
        (ε, δ), whichever of them grow and whichever shrink.

        Computational, because the variates come from a cipher; for one release, because a second under the same secret
        would be correlated with it. A ledger pays for one release of a secret, whoever holds copies of the sketch and
        whichever dataset they are charged to. A copy in a forked child refuses to be released. Without a ledger, or
        with another, nothing can know of the release of a copied file: keep no copies.

        Accuracy
        --------
        The standard error is (F_p + floor)/√(size·I), with I = 0.70 at p = 0.5 (the information of one coordinate).
        """
        return self._release(Budget(epsilon, delta, rho), self._account(ledger, dataset, part), estimator)

    @abstractmethod
    def _release(self, budget: Budget, account: Account, estimator: Estimator) -> ReleaseT:
        """Calibrate, obtain a permit, draw, end, and return the release."""

    def to_sensitive_bytes(self, *, include_secret: bool = False) -> bytes:
        """Return the sketch with its content, for use inside the trust boundary only.

        Without the secret it can be merged and released, not updated. Whoever holds the bytes *and* the secret can undo
        the projection.
        """
        return files.encode(self._completed(self._to_document(include_secret)))

    def to_shared_bytes(self) -> bytes:
        """Return the sketch with its secret: only what shares it will merge."""
        return self.to_sensitive_bytes(include_secret=True)

    def save_sensitive(self, path: str | PathLike[str], *, include_secret: bool = False) -> None:
        """Write the sketch with its content to a ``.sketch`` file that only its owner may read."""
        files.write(path, self._completed(self._to_document(include_secret)))

    @abstractmethod
    def _to_document(self, include_secret: bool = False) -> files.Document:
        """Return the sketch as a document of the file format, with its secret or without."""
