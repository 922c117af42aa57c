"""A private classifier with scikit-learn's conventions: one density a class, decided by kernel sums.

Scikit-learn is loaded when the classifier is fitted or asked, to check its input; it need not be there otherwise. The
class derives from nothing of it, so that ``import dpsketch`` stays quick.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from dpsketch.bounding import CountedUsers
from dpsketch.errors import DpsketchError, InvalidInput
from dpsketch.kernels import Angular, Kernel, named
from dpsketch.numbers import real_number
from dpsketch.privacy import Budget, Guarantee, Unit, per_record
from dpsketch.sketches.account import Account
from dpsketch.sketches.density.calibration import TABLE
from dpsketch.sketches.density.centre import centre_share_of, private_centre
from dpsketch.sketches.density.functions import row_functions
from dpsketch.sketches.density.points import VectorBatch
from dpsketch.sketches.density.private import PrivateDensity
from dpsketch.sketches.density.sketch import DensitySketch, bounded_points
from dpsketch.sketches.density.spec import DEFAULT_SEED, DensitySpec, default_width, read_bounds
from dpsketch.sketches.permit import Permit, obtain
from dpsketch.sketches.specs import fingerprint_of

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger

__all__ = ["DensityClassifier"]

Floats = npt.NDArray[np.float64]

_SCALED = (-1.0, 1.0)


class DensityClassifier:
    """Classify points by the class whose records are, in sum, most alike.

    Each class has a density sketch; all are released together for one budget. A kernel sum is the size of a class times
    its density at the point, so comparing sums is Bayes' rule with the classes' own frequencies: no class size is
    needed, and none is spent.

    Parameters
    ----------
    epsilon, delta, rho : float
        The budget of a fit, as for ``DensitySketch.release``; there is no default.
    bounds : (low, high), or one pair for each feature
        *Public* bounds of the features, to which values are moved. Features are scaled from them to [−1, 1].
        Needed, since a minimum, maximum or mean of the data is itself a datum.
    classes : sequence of labels, or "as_in_y"
        The *public* list of labels. A label that only one record has would otherwise show that it is there;
        "as_in_y" states that the labels in ``y`` are public knowledge, and the guarantee says so.
    kernel : {"angular", "euclidean", "manhattan"}
        How alike two points are, after scaling.
    rows : int
        Hash functions to average over.
    power : int
        The kernel's power.
    bandwidth : float, optional
        For the Euclidean and Manhattan kernels, in units of half a feature's range.
    smoothing : float
        For the angular kernel: planes that pass near a point are blurred, so that it reads a few counters of a row
        instead of one, and their noise averages out; 0 reads one. In units of the typical distance of a plane.
    centre : "private", "middle", or one number for each feature
        For the angular kernel, from where directions are taken: a private mean of the features, paid for by
        ``centre_share`` of the budget; the middle of the bounds; or a public point.
    centre_share : float
        The share of the budget for a private centre.
    unit : Unit, optional
        ``dps.per_record()`` by default. With ``dps.per_user(…)``, ``fit`` takes ``users``.
    seed : int
        Seed of the hash functions.
    ledger, dataset, part : optional
        Where to charge each fit.

    Attributes
    ----------
    classes_ : numpy.ndarray
        The labels.
    densities_ : list of PrivateDensity
        The release of each class.
    guarantee_ : Guarantee
        What the fit promised, for all of them together.
    centre_ : numpy.ndarray
        From where directions are taken, after scaling.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    All of scikit-learn's estimator checks pass but ``check_fit_idempotent`` and ``check_supervised_y_2d``: they compare
    two fits, and each fit draws noise of its own.

    Examples
    --------
    >>> import dpsketch as dps
    >>> import numpy as np
    >>> X = np.repeat([[0.0, 9.0], [8.0, 1.0]], 500, axis=0)
    >>> y = np.repeat(["up", "right"], 500)
    >>> model = dps.DensityClassifier(epsilon=1.0, delta=1e-6, bounds=(0, 10), classes=["up", "right"], rows=50)
    >>> model.fit(X, y).predict([[1.0, 8.0], [9.0, 0.0]]).tolist()
    ['up', 'right']
    """

    classes_: npt.NDArray[Any]
    densities_: list[PrivateDensity]
    guarantee_: Guarantee
    centre_: Floats
    n_features_in_: int

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        bounds: Any = None,
        classes: Any = None,
        kernel: str = "angular",
        rows: int = 800,
        power: int = 4,
        bandwidth: float | None = None,
        smoothing: float = 0.6,
        centre: Any = "private",
        centre_share: float = 0.05,
        unit: Unit | None = None,
        seed: int = DEFAULT_SEED,
        ledger: Ledger | str | None = None,
        dataset: str | None = None,
        part: str | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.rho = rho
        self.bounds = bounds
        self.classes = classes
        self.kernel = kernel
        self.rows = rows
        self.power = power
        self.bandwidth = bandwidth
        self.smoothing = smoothing
        self.centre = centre
        self.centre_share = centre_share
        self.unit = unit
        self.seed = seed
        self.ledger = ledger
        self.dataset = dataset
        self.part = part

    def fit(self, X: Any, y: Any, users: Any = None) -> Self:
        """Count the records of each class, charge the budget, and keep the release.

        Parameters
        ----------
        X : n × features
            The records' features.
        y : n labels
            The records' classes.
        users : column, optional
            Who each record belongs to; needed where the unit is a user, refused otherwise.

        Privacy
        -------
        A record lies in one class, so all classes' tables together move as far as one table does: each table has the
        noise of the whole budget, less the private centre's share. Nothing else is read from the data but, with
        ``classes="as_in_y"``, the list of labels.
        """
        utils = _scikit_learn()
        X, y = _checked(lambda: utils.validation.validate_data(self, X, y, dtype=np.float64))
        utils.multiclass.check_classification_targets(y)
        spec = self._spec(X.shape[1])
        labels, codes = self._labels(y)
        chosen = self._bounded(spec, X, codes, users)
        scaled, codes = self._scaled(X)[chosen], codes[chosen]
        centre = self._public_centre(spec)
        centre_share = 0.0 if centre is not None else self.centre_share
        permit = self._permit(spec, centre_share, len(labels))
        if centre is None:
            centre = private_centre(scaled, permit) if centre_share else np.zeros(spec.dim)
        tables = []
        for code in range(len(labels)):
            sketch = DensitySketch.from_spec(spec)
            sketch._add_bounded(VectorBatch(scaled[codes == code] - centre, None, 0))
            tables.append(permit.add_noise(sketch._table, TABLE, code))
        caveat = "The list of labels was read from the records, and stated to be public knowledge."
        stated = permit.guarantee(caveat=caveat if isinstance(self.classes, str) else None)
        law = permit.calibration.law(TABLE)
        releases = [PrivateDensity(spec, table, None, law, None, stated, permit.charge) for table in tables]
        # All at once: interrupted in between, an earlier fit's guarantee would stand beside these densities.
        vars(self).update(centre_=centre, densities_=releases, guarantee_=stated, classes_=labels)
        return self

    def kernel_sums(self, X: Any) -> Floats:
        """Return the estimated kernel sum of each point in each class, an array of n × classes.

        For the angular kernel, what points at a right angle have, 2^−power a record, is subtracted: the classes then
        differ by what is alike, and not by the noise in their sizes.
        """
        checks = _scikit_learn().validation
        checks.check_is_fitted(self)
        points = _checked(lambda: checks.validate_data(self, X, reset=False, dtype=np.float64))
        scaled = self._scaled(points) - self.centre_
        spec = self.densities_[0].spec
        if isinstance(spec.kernel, Angular):
            functions = row_functions(spec.kernel, spec.rows, spec.seed)
            tables = np.stack([density.table for density in self.densities_])
            sums = functions.smoothed_sums(VectorBatch(scaled, None, 0), tables, float(self.smoothing))
            return np.asarray(sums - tables.mean(axis=(1, 2)))
        return np.stack([density.estimate(scaled).value for density in self.densities_], axis=1)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class of each point: the one with the largest kernel sum."""
        sums = self.kernel_sums(X)
        return np.asarray(self.classes_[np.argmax(sums, axis=1)])

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, its share of all classes' kernel sums.

        Where noise makes a sum small or negative it is replaced by a small positive number, at the scale of the noise
        and in the same order.
        """
        sums = self.kernel_sums(X)
        scale = self.densities_[0].noise_scale
        positive = scale * np.logaddexp(0, sums / scale)
        return np.asarray(positive / positive.sum(axis=1, keepdims=True))

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
                raise InvalidInput(f"a DensityClassifier has no parameter {name!r}; it has {', '.join(known)}.")
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        utils = _scikit_learn()
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
        return f"DensityClassifier({', '.join(given)})"

    def _spec(self, features: int) -> DensitySpec:
        kernel = self._kernel(features)
        if not 0 <= real_number("smoothing", self.smoothing) < np.inf:
            raise InvalidInput("smoothing must be a number of at least 0.")
        unit = per_record() if self.unit is None else self.unit
        width = default_width(kernel, read_bounds(_SCALED, features))
        return DensitySpec(kernel, self.rows, width, unit, self.seed)

    def _public_centre(self, spec: DensitySpec) -> Floats | None:
        """Return the origin of directions, after scaling; None where it is to be private."""
        if not isinstance(spec.kernel, Angular):
            return np.zeros(spec.dim)
        if not isinstance(self.centre, str):
            point = np.asarray(self.centre, dtype=np.float64)
            if point.shape != (spec.dim,) or not np.all(np.isfinite(point)):
                raise InvalidInput(f"centre must have a finite number for each of the {spec.dim} features.")
            return np.asarray(self._scaled(point[None, :])[0])
        if self.centre not in ("private", "middle"):
            raise InvalidInput("centre is 'private', 'middle', or one number for each feature.")
        return np.zeros(spec.dim) if self.centre == "middle" else None

    def _permit(self, spec: DensitySpec, centre_share: float, classes: int) -> Permit:
        centre = centre_share_of(spec.unit, spec.dim, centre_share)
        calibrated = spec.calibrate(Budget(self.epsilon, self.delta, self.rho), centre, pieces=classes)
        note = f"density classifier {fingerprint_of(spec)}"
        return obtain(calibrated, spec.unit, Account(self.ledger, self.dataset, self.part), note=note)

    def _kernel(self, features: int) -> Kernel:
        match self.kernel:
            case "angular":
                if features < 2:
                    raise InvalidInput("the data have 1 feature, n_features = 1; an angular kernel needs two or more.")
                return named("angular", dim=features, power=self.power)
            case "euclidean" | "manhattan":
                if self.bandwidth is None:
                    raise InvalidInput(f"the {self.kernel} kernel needs bandwidth=, in halves of a feature's range.")
                return named(self.kernel, dim=features, power=self.power, bandwidth=self.bandwidth)
            case _:
                raise InvalidInput(f"kernel is 'angular', 'euclidean' or 'manhattan', not {self.kernel!r}.")

    def _labels(self, y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
        if self.classes is None:
            raise InvalidInput(
                "say classes=: the public list of labels, or 'as_in_y' to state that the labels in y are public."
            )
        if isinstance(self.classes, str):
            if self.classes != "as_in_y":
                raise InvalidInput("classes is a list of labels, or 'as_in_y'.")
            labels = np.unique(y)
        else:
            labels = np.unique(np.asarray(self.classes))
        if len(labels) < 2:
            raise InvalidInput("a classifier needs at least two classes; there is 1 class.")
        codes = np.searchsorted(labels, y).clip(max=len(labels) - 1)
        if np.any(labels[codes] != y):
            raise InvalidInput("y holds a label that is not among classes=.")
        return labels, codes

    def _scaled(self, X: Floats) -> Floats:
        bounds = read_bounds(self.bounds, X.shape[1])
        if bounds is None:
            raise InvalidInput("say bounds=: public bounds of the features. None may be read from the data.")
        lows, highs = np.array(bounds).T
        return np.asarray((np.clip(X, lows, highs) - (lows + highs) / 2) / ((highs - lows) / 2))

    @staticmethod
    def _bounded(spec: DensitySpec, X: Floats, codes: npt.NDArray[np.intp], users: Any) -> npt.NDArray[np.intp]:
        """Choose the records that count; a user's are bounded over all classes together."""
        if spec.unit.level == "record":
            if users is not None:
                raise InvalidInput("this classifier protects records: users= goes with unit=dps.per_user(max_keys=…).")
            return np.arange(len(X))
        keys = VectorBatch(np.column_stack([X, codes]), None, 0).keys()
        return bounded_points(spec, keys, users, CountedUsers(), False)[0]


def _checked(check: Callable[[], Any]) -> Any:
    """Run scikit-learn's checks; two of its messages quote a record, or say how many there are."""
    quoted = ""
    try:
        return check()
    except ValueError as error:
        if "could not convert" in str(error):
            quoted = "a feature is not a number: X must be numeric, text is not."
        elif "inconsistent numbers of samples" in str(error):
            quoted = "X and y must have one label a record: found inconsistent numbers of samples."
        else:
            raise
    raise InvalidInput(quoted)


def _scikit_learn() -> Any:
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
