"""A private classifier with scikit-learn's conventions: one sum or density a class, released together.

Scikit-learn is loaded when the classifier is fitted or asked, to check its input; it need not be there otherwise. The
class derives from nothing of it, so that ``import dpsketch`` stays quick.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch.arrays import Floats
from dpsketch.bounding import CountedUsers
from dpsketch.core.account import Account
from dpsketch.errors import InvalidInput
from dpsketch.kernels import Angular
from dpsketch.privacy import Budget, Guarantee, PureCost, Unit, per_record
from dpsketch.sketches.density.calibration import TABLE
from dpsketch.sketches.density.centre import centre_share_of
from dpsketch.sketches.density.class_answers import ClassAnswers
from dpsketch.sketches.density.class_densities import add_classes, class_kernel, density_spec, scaled_between
from dpsketch.sketches.density.class_files import Fitted, document_of, fitted_of
from dpsketch.sketches.density.class_labels import codes_of, listed, public_labels
from dpsketch.sketches.density.class_partial import ClassPartial, ClassSpec, chosen_records
from dpsketch.sketches.density.class_passes import passes_of
from dpsketch.sketches.density.class_sums import Extras, fitting_extras, fitting_passes
from dpsketch.sketches.density.embedding import embedding_map
from dpsketch.sketches.density.estimator import checked, scikit_learn
from dpsketch.sketches.density.points import fixed_vectors
from dpsketch.sketches.density.private import PrivateDensity
from dpsketch.sketches.density.spec import DEFAULT_SEED, DensitySpec, read_bounds
from dpsketch.sketches.permit import Permit, obtain
from dpsketch.sketches.specs import fingerprint_of, refuse_choice

if TYPE_CHECKING:
    from dpsketch.ledger import Charge, Ledger

__all__ = ["DensityClassifier"]


_SEEN = ("n_features_in_", "feature_names_in_")


class DensityClassifier(ClassAnswers):
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
    classes_ : numpy.ndarray
        The labels.
    densities_ : list of PrivateDensity
        The release of each class; not for the linear kernel.
    sums_ : PrivateClassSums
        The release of all classes, for the linear kernel.
    guarantee_ : Guarantee
        What the fit promised, for all of them together.
    charge_ : Charge or None
        The ledger's row, where a ledger was charged.
    centre_ : numpy.ndarray
        From where directions are taken, after scaling; not for the linear kernel.
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

    guarantee_: Guarantee
    charge_: Charge | None
    n_features_in_: int

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
        labels, caveat = public_labels(self.classes, y)
        codes = codes_of(labels, y)
        if self._linear:
            held, vectors = self._started(X.shape[1], labels, caveat), self._vectors(X)
            chosen = held.update(X, vectors, codes, users)
            return self._released(held, seen, (vectors[chosen], codes[chosen]))
        if passes_of(self.passes) > 1:
            raise InvalidInput("passes= goes with the linear kernel, whose sums can be corrected.")
        kernel = class_kernel(self.kernel, X.shape[1], self.power, self.bandwidth)
        spec = density_spec(kernel, X.shape[1], self.rows, self.smoothing, self.unit, self.seed)
        chosen = chosen_records(spec.unit, self.seed, X, codes, users, CountedUsers())[0]
        scaled, codes = scaled_between(X, self.bounds)[chosen], codes[chosen]
        centre = self._public_centre(spec)
        permit = self._permit(spec, self.centre_share if centre is None else 0.0, len(labels))
        if not self.centre_share and centre is None:
            centre = np.zeros(spec.dim)
        centre, tables = add_classes(spec, permit, scaled, codes, len(labels), centre)
        stated, law = permit.guarantee(caveat=caveat), permit.calibration.law(TABLE)
        releases = [
            PrivateDensity(spec, table, None, law, None, guarantee=stated, charge=permit.charge) for table in tables
        ]
        return self._keep(
            centre_=centre, densities_=releases, guarantee_=stated, classes_=labels, charge_=permit.charge, **seen
        )

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
            labels, caveat = public_labels(self.classes, y) if classes is None else (listed(classes), None)
            held = self._started(X.shape[1], labels, caveat)
        held.update(X, self._vectors(X), codes_of(np.array(held.spec.labels), y), users)
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
        if self._held is None:
            raise InvalidInput("there is nothing to release: partial_fit() counts, and fit() counts and releases.")
        self._released(self._held, vars(self)["_partial_seen"])
        del vars(self)["_partial"], vars(self)["_partial_seen"]
        return self

    def save(self, path: str | PathLike[str]) -> None:
        """Write what the fit released, of all classes together, as one file; public."""
        scikit_learn().validation.check_is_fitted(self)
        bounds = read_bounds(self.bounds, self.n_features_in_)
        settings = {
            "kernel": "linear" if self._sums is not None else "angular" if self.kernel is None else self.kernel,
            "bounds": None if bounds is None else [list(pair) for pair in bounds],
            "smoothing": float(self.smoothing),
        }
        kept = (vars(self).get(name) for name in ("charge_", "sums_", "densities_", "centre_"))
        fitted = Fitted(self.classes_.tolist(), self.n_features_in_, settings, self.guarantee_, *kept)
        files.write(path, document_of(fitted))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a fitted classifier from a file of :meth:`save`: it answers, and has no budget to be fitted again."""
        found = fitted_of(files.read(path, allow_sensitive=False))
        model = cls(**found.settings)
        released = {"sums_": found.sums, "densities_": found.densities, "centre_": found.centre}
        model._keep(
            **released, guarantee_=found.guarantee, classes_=np.array(found.labels), charge_=found.charge,
            n_features_in_=found.features,
        )  # fmt: skip
        return model

    def _released(
        self, held: ClassPartial, seen: dict[str, Any], again: tuple[Floats, npt.NDArray[np.intp]] | None = None
    ) -> Self:
        if again is None and held.spec.extras.passes > 1:
            raise InvalidInput("passes= goes with fit(), which has all records at once; nothing was charged.")
        account = held._account(self.ledger, self.dataset, self.part)
        permit = held.obtain_permit(Budget(self.epsilon, self.delta, self.rho), account)
        sums = held.drawn(permit)
        if again is not None:
            sums = sums.corrected(*again, permit, held.spec.extras.passes)
        stated = permit.guarantee(caveat=held.caveat)
        return self._keep(
            sums_=sums, guarantee_=stated, classes_=np.array(held.spec.labels), charge_=permit.charge, **seen
        )

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
        passes = fitting_passes(self.passes, budget, unit, shape, self.expected_records, len(labels))
        if passes > 1 and isinstance(budget.cost, PureCost):
            raise InvalidInput("passes= needs δ > 0: pure ε would have to be divided among them.")
        extras = Extras(passes=passes)
        if passes == 1:
            extras = fitting_extras(
                budget, unit, shape, self.expected_records, len(labels), self.seed, scaled=self.bounds is not None
            )
        held = ClassPartial.from_spec(ClassSpec(shape, tuple(labels.tolist()), unit, extras, self.seed))
        held.caveat = caveat
        return held

    def _keep(self, **fitted: Any) -> Self:
        # All at once: interrupted in between, an earlier fit's guarantee would stand beside these densities.
        left = {
            name: None
            for name in ("sums_", "densities_", "centre_", "charge_")
            if name not in fitted and name in vars(self)
        }
        vars(self).update(fitted | left)
        if "feature_names_in_" not in fitted:
            vars(self).pop("feature_names_in_", None)
        return self

    def _public_centre(self, spec: DensitySpec) -> Floats | None:
        """Return the origin of directions, after scaling; None where it is to be private."""
        if not isinstance(spec.kernel, Angular):
            return np.zeros(spec.dim)
        if not isinstance(self.centre, str):
            point = np.asarray(self.centre, dtype=np.float64)
            if point.shape != (spec.dim,) or not np.all(np.isfinite(point)):
                raise InvalidInput(f"centre must have a finite number for each of the {spec.dim} features.")
            return np.asarray(scaled_between(point[None, :], self.bounds)[0])
        if self.centre not in ("private", "middle"):
            raise InvalidInput("centre is 'private', 'middle', or one number for each feature.")
        return np.zeros(spec.dim) if self.centre == "middle" else None

    def _permit(self, spec: DensitySpec, centre_share: float, classes: int) -> Permit:
        centre = centre_share_of(spec.unit, spec.dim, centre_share)
        calibrated = spec.calibrate(Budget(self.epsilon, self.delta, self.rho), centre, pieces=classes)
        note = f"density classifier {fingerprint_of(spec)}"
        return obtain(calibrated, spec.unit, self._account, note=note)

    @property
    def _account(self) -> Account:
        return Account(self.ledger, self.dataset, self.part)

    @property
    def _linear(self) -> bool:
        return self.kernel == "linear" or (self.kernel is None and self.bounds is None)
