"""Scikit-learn's conventions for an estimator, without a class of its own to derive from."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dpsketch.errors import DpsketchError, InvalidInput

__all__ = ["ScikitEstimator", "checked", "scikit_learn"]


# What stands in such a message of scikit-learn, and what is said instead.
_QUOTING = {
    "could not convert": "a feature is not a number: X must be numeric, text is not.",
    "inconsistent numbers of samples": "X and y must have one label a record: found inconsistent numbers of samples.",
    "Complex data not supported": "Complex data not supported: X must hold real numbers.",
    "Expected 2D array": "Expected 2D array. Reshape your data: X has one row a record, one column a feature.",
    "should be a 1d array": "y should be a 1d array: one label a record.",
}


class ScikitEstimator(ABC):
    """What a classifier is asked by scikit-learn's tools: its parameters, its score and its tags."""

    @abstractmethod
    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class of each point."""

    def score(self, X: Any, y: Any) -> float:
        """Return the share of points that are classified as ``y`` says."""
        return float(np.mean(self.predict(X) == np.asarray(y)))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change parameters by name."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise InvalidInput(f"a {type(self).__name__} has no parameter {name!r}; it has {', '.join(known)}.")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        utils = scikit_learn()
        return utils.Tags(
            estimator_type="classifier",
            target_tags=utils.TargetTags(required=True),
            classifier_tags=utils.ClassifierTags(),
            input_tags=utils.InputTags(),
            non_deterministic=True,
        )

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        given = [
            f"{name}={value!r}" for name, value in self.get_params().items() if value is not defaults[name].default
        ]
        return f"{type(self).__name__}({', '.join(given)})"


def checked(check: Callable[[], Any]) -> Any:
    """Run scikit-learn's checks; some of its messages quote records, or say how many there are."""
    quoted = ""
    try:
        return check()
    except ValueError as error:
        said = [words for part, words in _QUOTING.items() if part in str(error)]
        if not said:
            raise
        quoted = said[0]
    raise InvalidInput(quoted)


def scikit_learn() -> Any:
    """Return scikit-learn's checks, or say how to install them."""
    try:
        import sklearn.utils.multiclass
        import sklearn.utils.validation
    except ModuleNotFoundError:
        missing = True
    else:
        missing = False
    if missing:
        raise DpsketchError("a DensityClassifier checks its input with scikit-learn: pip install 'dpsketch[learn]'.")
    return sklearn.utils
