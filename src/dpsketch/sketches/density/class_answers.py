"""What a fitted classifier answers: scores, classes and probabilities, all made of what its fit released."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dpsketch.arrays import Floats
from dpsketch.kernels import Angular
from dpsketch.sketches.density.class_densities import angular_scores, angular_sums, scaled_between
from dpsketch.sketches.density.class_sums import PrivateClassSums
from dpsketch.sketches.density.estimator import Estimator, checked, scikit_learn
from dpsketch.sketches.density.points import fixed_vectors
from dpsketch.sketches.density.private import PrivateDensity

__all__ = ["ClassAnswers"]


_COSINE_SCALE = 0.05


class ClassAnswers(Estimator):
    """A classifier that was fitted. Public: it reads what was released, its settings, and the points it is asked."""

    bounds: Any
    smoothing: float

    classes_: npt.NDArray[Any]
    densities_: list[PrivateDensity]
    sums_: PrivateClassSums
    centre_: Floats

    def kernel_sums(self, X: Any) -> Floats:
        """Return the estimated kernel sum of each point in each class, an array of n × classes.

        For the angular kernel, what points at a right angle have, 2^−power a record, is subtracted: the classes then
        differ by what is alike, and not by the noise in their sizes.
        """
        checks = scikit_learn().validation
        checks.check_is_fitted(self)
        points = checked(lambda: checks.validate_data(self, fixed_vectors(X), reset=False, dtype=np.float64))
        if self._sums is not None:
            return self._sums.kernel_sums(self._vectors(points))
        scaled = scaled_between(points, self.bounds) - self.centre_
        if self._angular:
            return angular_sums(self.densities_, scaled, float(self.smoothing))
        return np.stack([density.estimate(scaled).value for density in self.densities_], axis=1)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class of each point: the one with the largest score."""
        scores = self._scores(X)
        return np.asarray(self.classes_[np.argmax(scores, axis=1)])

    def decision_function(self, X: Any) -> Floats:
        """Return the score of each point in each class, n × classes; of two classes, the second's log odds.

        For the linear kernel: about the cosine of the point and the class's sum, less where noise hides the class. For
        the angular one: kernel sums as if all classes were of one length, as far as noise lets their lengths be told.
        For others: the kernel sums.
        """
        scikit_learn().validation.check_is_fitted(self)
        if len(self.classes_) > 2:
            return self._scores(X)
        shares = self.predict_proba(X)
        return np.asarray(np.log(shares[:, 1]) - np.log(shares[:, 0]))

    def _scores(self, X: Any) -> Floats:
        checks = scikit_learn().validation
        checks.check_is_fitted(self)
        if self._sums is None:
            return angular_scores(self.densities_, self.kernel_sums(X)) if self._angular else self.kernel_sums(X)
        points = checked(lambda: checks.validate_data(self, fixed_vectors(X), reset=False, dtype=np.float64))
        return self._sums.scores(self._vectors(points))

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, its share of all classes' scores.

        Where noise makes a sum small or negative it is replaced by a small positive number, at the scale of the noise
        and in the same order. For the linear kernel, scores are cosines: their exponentials, at a scale of a twentieth,
        are in the right order, and not calibrated.
        """
        sums = self._scores(X)
        if self._sums is not None:
            likelihoods = np.exp((sums - sums.max(axis=1, keepdims=True)) / _COSINE_SCALE)
            return np.asarray(likelihoods / likelihoods.sum(axis=1, keepdims=True))
        scale = self.densities_[0].noise_scale
        positive = scale * np.logaddexp(0, sums / scale)
        return np.asarray(positive / positive.sum(axis=1, keepdims=True))

    def __sklearn_is_fitted__(self) -> bool:
        return "guarantee_" in vars(self)

    @property
    def _sums(self) -> PrivateClassSums | None:
        """What a fit with the linear kernel released; None where the last fit had another."""
        return getattr(self, "sums_", None)

    @property
    def _angular(self) -> bool:
        return isinstance(self.densities_[0].spec.kernel, Angular)

    def _vectors(self, X: Floats) -> Floats:
        """Return vectors of length at most 1, but for what the map itself scales down."""
        return X if self.bounds is None else scaled_between(X, self.bounds) / np.sqrt(X.shape[1])
