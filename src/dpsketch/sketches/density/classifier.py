"""Classify points privately with scikit-learn's conventions: one sum or density a class, released together.

Scikit-learn is loaded when the classifier is fitted or asked, to check its input; it need not be there otherwise. The
class derives from nothing of it, so that ``import dpsketch`` stays quick.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch.arrays import Floats, Integers
from dpsketch.bounding import CountedUsers
from dpsketch.core.account import Account
from dpsketch.core.drawn import read_release, release_document
from dpsketch.core.permit import Permit
from dpsketch.errors import DpsketchError, FileRefused, InvalidInput
from dpsketch.kernels import Angular
from dpsketch.privacy import Budget, Guarantee, PureCost, Unit, per_record
from dpsketch.sketches.density.class_densities import (
    CENTRE,
    ClassDensitySpec,
    PrivateClassDensities,
    centre_vector,
    class_kernel,
    class_tables,
    density_of_a_class,
    private_centre,
)
from dpsketch.sketches.density.class_spec import (
    ClassSpec,
    Extras,
    embedding_map,
    fitting_extras,
    fitting_passes,
    passes_of,
)
from dpsketch.sketches.density.class_sums import ClassPartial, PrivateClassSums, chosen_records
from dpsketch.sketches.density.points import fixed_vectors
from dpsketch.sketches.density.sketch import PrivateDensity
from dpsketch.sketches.specs import DEFAULT_SEED, fingerprint_of, refuse_choice

if TYPE_CHECKING:
    from dpsketch.ledger import Charge, Ledger


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


READ_FROM_RECORDS = "The list of labels was read from the records, and stated to be public knowledge."

_KIND = "classes"
_SEEN = ("n_features_in_", "feature_names_in_")


class DensityClassifier(ScikitEstimator):
    """Classify points by the class whose records are most alike.

    *Embeddings* (``kernel="linear"``, the default without ``bounds``): each class has the sum of its vectors, of length
    at most 1; all are released together for one budget, and a point goes to the class whose noisy sum lies in its
    direction. One pass; for texts, pictures and whatever else an encoder has turned into vectors. The encoder must not
    have been trained on the records.

    *Features* (other kernels, the default with ``bounds``): each class has a density sketch. A kernel sum is the size
    of a class times its density at the point, so comparing sums is Bayes' rule with the classes' own frequencies: no
    class size is needed, and none is spent. Sums of the angular kernel are divided by the lengths of the classes in
    feature space first, as far as noise lets them be told: a class does not win by its size, nor by being narrow.

    Parameters
    ----------
    epsilon, delta, rho : float
        The budget of a fit, as for ``DensitySketch.release``; there is no default.
    bounds : (low, high), or one pair for each feature, optional
        *Public* bounds of the features, to which values are moved. Features are scaled from them to [−1, 1]. Needed
        but for the linear kernel, since a minimum, maximum or mean of the data is itself a datum. Without them,
        vectors longer than 1 are scaled down to length 1.
    classes : sequence of labels, or "as_in_y"
        The *public* list of labels. A label that only one record has would otherwise show that it is there;
        "as_in_y" states that the labels in ``y`` are public knowledge, and the guarantee says so.
    kernel : {"linear", "angular", "euclidean", "manhattan"}, optional
        How alike two points are, after scaling; "linear" without bounds and "angular" with them, if not given.
    public : array, optional
        For the linear kernel: public vectors of the same encoder, of any domain. Their mean is subtracted, and vectors
        are measured along half as many of their principal directions, which helps most where ε is small.
    expected_records : float, optional
        A *public* guess at the number of records. For the linear kernel: where it is large beside the noise, a share of
        the budget goes to second moments (linear discriminant analysis) and to waves, which tell near records from
        far ones; for pure ε it sets how many dimensions are kept. A wrong guess costs accuracy, never privacy.
    dims : int, optional
        For the linear kernel: how many dimensions are kept, of public directions or, for pure ε, of random ones.
    passes : int or "auto"
        For the linear kernel and δ > 0: how often the records are read. Later passes release what the classes get
        wrong, for shares of the same budget, in place of second moments and waves. "auto" takes two, or nine where
        ``expected_records`` is large beside the noise. All records must be there at once: ``partial_fit`` has one pass.
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
    n_features_in_ : int
        Number of features.

    Notes
    -----
    All of scikit-learn's estimator checks pass but ``check_fit_idempotent``, ``check_supervised_y_2d`` and
    ``check_classifier_data_not_an_array``: they compare two fits, and each fit draws noise of its own.

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

    n_features_in_: int

    _released: PrivateClassSums | PrivateClassDensities

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        rho: float | None = None,
        bounds: Any = None,
        classes: Any = None,
        kernel: str | None = None,
        public: Any = None,
        expected_records: float | None = None,
        dims: int | None = None,
        passes: int | str = 1,
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
        self.public = public
        self.expected_records = expected_records
        self.dims = dims
        self.passes = passes
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
            The records' features: an array of any precision, a frame, or an Arrow column of fixed-size lists.
        y : n labels
            The records' classes.
        users : column, optional
            Who each record belongs to; needed where the unit is a user, refused otherwise.

        Privacy
        -------
        A record lies in one class, so all classes' tables together move as far as one table does: each table has the
        noise of the whole budget, less the share of a private centre, of second moments or of later passes. Nothing
        else is read from the data but, with ``classes="as_in_y"``, the list of labels.
        """
        refuse_choice(self.unit)
        X, y, seen = self._read(X, y, {})
        labels, caveat = _public_labels(self.classes, y)
        codes = _codes_of(labels, y)
        budget = Budget(self.epsilon, self.delta, self.rho)
        if self._linear:
            held = self._started(X.shape[1], labels, caveat)
            chosen = held.count(X, codes, users)
            account = held._account(self.ledger, self.dataset, self.part)
            return self._keep(held.publish(budget, account, (X[chosen], codes[chosen])), seen)
        if passes_of(self.passes) > 1:
            raise InvalidInput("passes= goes with the linear kernel, whose sums can be corrected.")
        kernel = class_kernel(self.kernel, X.shape[1], self.power, self.bandwidth)
        unit = per_record() if self.unit is None else self.unit
        density = density_of_a_class(kernel, X.shape[1], self.rows, unit, self.seed)
        spec = ClassDensitySpec(density, tuple(labels.tolist()), self.bounds, self.smoothing, None)
        spec = replace(spec, centre=self._public_centre(spec))
        chosen = chosen_records(unit, self.seed, X, codes, users, CountedUsers())[0]
        scaled, codes = spec.scaled(X)[chosen], codes[chosen]
        note = f"density classifier {fingerprint_of(density)}"
        account = Account(self.ledger, self.dataset, self.part)
        counters, *private = laws = spec.laws(budget, self.centre_share)
        permit = Permit.pay(spec, laws, budget, account, note=note)
        centre = np.zeros(spec.dim) if spec.centre is None else np.array(spec.centre)
        for law in private:
            found = permit.draw(law, {CENTRE: centre_vector(scaled)})
            centre = private_centre(cast("Integers", found["table"]), law.noise)
        permit.draw(counters, class_tables(spec, scaled - centre, codes))
        return self._keep(PrivateClassDensities(spec, permit.drawn(caveat=caveat)), seen)

    def _read(self, X: Any, y: Any, seen: dict[str, Any]) -> tuple[Floats, npt.NDArray[Any], dict[str, Any]]:
        """Check records by what was ``seen`` of those before, if any; return it for those after.

        Scikit-learn writes it on the model that it checks. Here that is another one: until it is released, a fit
        changes nothing that answers questions.
        """
        utils, asked, given = scikit_learn(), type(self)(**self.get_params()), fixed_vectors(X)
        vars(asked).update(seen)
        X, y = checked(lambda: utils.validation.validate_data(asked, given, y, reset=not seen, dtype=np.float64))
        utils.multiclass.check_classification_targets(y)
        return X, y, {name: value for name, value in vars(asked).items() if name in _SEEN}

    @property
    def partial_fit(self) -> Callable[..., Self]:
        """Count a batch of records and release nothing: :meth:`release` does, once all batches are in.

        ``partial_fit(X, y, classes=None, users=None)``, for the linear kernel, whose sums need no centre. Of a user,
        all records must come in one batch. ``classes`` is the public list, with the first batch, where the constructor
        was not given one.

        Privacy
        -------
        What was counted is sensitive until it is released: the model cannot be pickled, nor asked.
        """
        if not self._linear:
            raise AttributeError("partial_fit is for the linear kernel, whose sums need no centre: fit others at once.")
        if self.passes != 1:
            raise AttributeError("partial_fit reads records once: passes= goes with fit(), which has them all at once.")
        return self._count

    def _count(self, X: Any, y: Any, classes: Any = None, users: Any = None) -> Self:
        refuse_choice(self.unit)
        held, seen = self._held, vars(self).get("_partial_seen", {})
        X, y, seen = self._read(X, y, seen if held is not None else {})
        if held is None:
            labels, caveat = _public_labels(self.classes, y) if classes is None else (_listed(classes), None)
            held = self._started(X.shape[1], labels, caveat)
        held.count(X, _codes_of(np.array(held.spec.labels), y), users)
        # What an earlier fit released keeps its own number of features.
        shown = {} if self.__sklearn_is_fitted__() else seen
        vars(self).update({"_partial": held, "_partial_seen": seen, **shown})
        return self

    def merge(self, other: Self) -> Self:
        """Add what another model of equal settings has counted by :meth:`partial_fit`, of other records and users."""
        if self._held is None or other._held is None:
            raise InvalidInput(
                "merge() adds what partial_fit() counted: both models must have counted, and not released."
            )
        self._held.merge(other._held)
        return self

    def release(self) -> Self:
        """Charge the budget for what :meth:`partial_fit` counted, draw the noise, and keep the release."""
        held = self._held
        if held is None:
            raise InvalidInput("there is nothing to release: partial_fit() counts, and fit() counts and releases.")
        account = held._account(self.ledger, self.dataset, self.part)
        self._keep(held.publish(Budget(self.epsilon, self.delta, self.rho), account), vars(self)["_partial_seen"])
        del vars(self)["_partial"], vars(self)["_partial_seen"]
        return self

    def save(self, path: str | PathLike[str]) -> None:
        """Write what the fit released, of all classes together, as one file; public."""
        scikit_learn().validation.check_is_fitted(self)
        files.write(path, release_document(_KIND, self._released.spec, self._released.drawn))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a fitted classifier from a file of :meth:`save`: it answers, and has no budget to be fitted again."""
        found = files.rebuilt(files.read(path, allow_sensitive=False), _StoredClassifier)
        if isinstance(found, PrivateClassSums):
            model = cls(kernel="linear", bounds=found.spec.bounds)
        else:
            spec = found.spec
            model = cls(kernel=spec.density.kernel.name, bounds=spec.bounds, smoothing=spec.smoothing)
        return model._keep(found, {"n_features_in_": found.spec.dim})

    def kernel_sums(self, X: Any) -> Floats:
        """Return the estimated kernel sum of each point in each class, an array of n × classes.

        For the angular kernel, what points at a right angle have, 2^−power a record, is subtracted: the classes then
        differ by what is alike, and not by the noise in their sizes.
        """
        points = self._asked(X)
        return self._released.kernel_sums(points)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return the class of each point: the one with the largest score."""
        points = self._asked(X)
        return np.asarray(self.classes_[np.argmax(self._released.scores(points), axis=1)])

    def decision_function(self, X: Any) -> Floats:
        """Return the score of each point in each class, n × classes; of two classes, the second's log odds.

        For the linear kernel: about the cosine of the point and the class's sum, less where noise hides the class. For
        the angular one: kernel sums as if all classes were of one length, as far as noise lets their lengths be told.
        For others: the kernel sums.
        """
        points = self._asked(X)
        if len(self.classes_) > 2:
            return self._released.scores(points)
        shares = self._released.probabilities(points)
        return np.asarray(np.log(shares[:, 1]) - np.log(shares[:, 0]))

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, its share of all classes' scores.

        If noise makes a sum small or negative, it is replaced by a small positive number, at the scale of the noise
        and in the same order. For the linear kernel, scores are cosines: their exponentials, at a scale of a twentieth,
        are in the right order, and not calibrated.
        """
        points = self._asked(X)
        return self._released.probabilities(points)

    @property
    def guarantee_(self) -> Guarantee:
        """What the fit promised, for all classes together."""
        return self._fitted.drawn.guarantee

    @property
    def charge_(self) -> Charge | None:
        """The ledger's row, if a ledger was charged."""
        return self._fitted.drawn.charge

    @property
    def classes_(self) -> npt.NDArray[Any]:
        """The labels."""
        return np.array(self._fitted.spec.labels)

    @property
    def sums_(self) -> PrivateClassSums:
        """The release of all classes, for the linear kernel; None for others."""
        return cast("PrivateClassSums", self._fitted if isinstance(self._fitted, PrivateClassSums) else None)

    @property
    def densities_(self) -> list[PrivateDensity]:
        """The release of each class; None for the linear kernel."""
        return cast("list[PrivateDensity]", getattr(self._fitted, "densities", None))

    @property
    def centre_(self) -> Floats:
        """From where directions are taken, after scaling; None for the linear kernel."""
        return cast("Floats", getattr(self._fitted, "centre", None))

    def __sklearn_is_fitted__(self) -> bool:
        return "_released" in vars(self)

    @property
    def _fitted(self) -> PrivateClassSums | PrivateClassDensities:
        if not self.__sklearn_is_fitted__():
            raise AttributeError("this classifier was not fitted, or what it counted was not released.")
        return self._released

    def _asked(self, X: Any) -> Floats:
        """Check points that are asked."""
        checks = scikit_learn().validation
        checks.check_is_fitted(self)
        points: Floats = checked(lambda: checks.validate_data(self, fixed_vectors(X), reset=False, dtype=np.float64))
        return points

    @property
    def _held(self) -> ClassPartial | None:
        """What partial_fit has counted. Sensitive."""
        return vars(self).get("_partial")

    def _started(self, features: int, labels: npt.NDArray[Any], caveat: str | None) -> ClassPartial:
        unit = per_record() if self.unit is None else self.unit
        if not isinstance(unit, Unit) or unit.max_weight != 1:
            raise InvalidInput("unit must be dps.per_record() or dps.per_user(max_keys=…), with max_weight 1.")
        budget = Budget(self.epsilon, self.delta, self.rho)
        shape = embedding_map(features, budget, len(labels), self.public, self.expected_records, self.dims, self.seed)
        measured, records, classes = shape.spec, self.expected_records, len(labels)
        passes = fitting_passes(self.passes, budget, unit, measured, records, classes)
        if passes > 1 and isinstance(budget.cost, PureCost):
            raise InvalidInput("passes= needs δ > 0: pure ε would have to be divided among them.")
        extras, scaled = Extras(passes=passes), self.bounds is not None
        if passes == 1:
            extras = fitting_extras(budget, unit, measured, records, classes, self.seed, scaled=scaled)
        spec = ClassSpec(tuple(labels.tolist()), unit, measured, extras, self.seed, self.bounds)
        held = ClassPartial.measuring(spec, shape)
        held.caveat = caveat
        return held

    def _keep(self, released: PrivateClassSums | PrivateClassDensities, seen: dict[str, Any]) -> Self:
        # All at once: interrupted in between, an earlier fit's features would stand beside this release.
        vars(self).update({"_released": released, **seen})
        if "feature_names_in_" not in seen:
            vars(self).pop("feature_names_in_", None)
        return self

    def _public_centre(self, spec: ClassDensitySpec) -> tuple[float, ...] | None:
        """Return the origin of directions, after scaling; None if it is to be private."""
        middle = (0.0,) * spec.dim
        if not isinstance(spec.density.kernel, Angular):
            return middle
        if not isinstance(self.centre, str):
            point = np.asarray(self.centre, dtype=np.float64)
            if point.shape != (spec.dim,) or not np.all(np.isfinite(point)):
                raise InvalidInput(f"centre must have a finite number for each of the {spec.dim} features.")
            return tuple(spec.scaled(point[None, :])[0].tolist())
        if self.centre not in ("private", "middle"):
            raise InvalidInput("centre is 'private', 'middle', or one number for each feature.")
        return middle if self.centre == "middle" or not self.centre_share else None

    @property
    def _linear(self) -> bool:
        return self.kernel == "linear" or (self.kernel is None and self.bounds is None)


class _StoredClassifier:
    """The release in a classifier's file."""

    @staticmethod
    def from_document(document: files.Document) -> PrivateClassSums | PrivateClassDensities:
        """Read a release; the file may have been written by anyone."""
        if document.kind != _KIND:
            raise FileRefused(f"the file holds a release of {document.kind}, no classifier.")
        either: Any = ClassSpec | ClassDensitySpec
        spec, drawn = read_release(document, either)
        return PrivateClassSums(spec, drawn) if isinstance(spec, ClassSpec) else PrivateClassDensities(spec, drawn)


def _public_labels(classes: Any, y: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], str | None]:
    """Return the labels that ``classes=`` lists, and what a guarantee has to say of them."""
    if classes is None:
        raise InvalidInput(
            "say classes=: the public list of labels, or 'as_in_y' to state that the labels in y are public."
        )
    if not isinstance(classes, str):
        return _listed(classes), None
    if classes != "as_in_y":
        raise InvalidInput("classes is a list of labels, or 'as_in_y'.")
    return _listed(y), READ_FROM_RECORDS


def _listed(labels: Any) -> npt.NDArray[Any]:
    """Return a public list of labels, each once."""
    found = np.unique(np.asarray(labels))
    if len(found) < 2:
        raise InvalidInput("a classifier needs at least two classes; there is 1 class.")
    return found


def _codes_of(labels: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return the place of each record's label in the list."""
    codes = np.searchsorted(labels, y).clip(max=len(labels) - 1)
    if np.any(labels[codes] != y):
        raise InvalidInput("y holds a label that is not among classes=.")
    return codes
