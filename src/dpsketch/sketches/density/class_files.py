"""A fitted classifier as one file, and back: what was released of all classes under one guarantee."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsketch import files
from dpsketch.arrays import Floats
from dpsketch.errors import FileRefused
from dpsketch.ledger import Charge
from dpsketch.noise import noise_from_json
from dpsketch.numbers import real_number
from dpsketch.privacy import Guarantee
from dpsketch.sketches.density.class_partial import stored_map
from dpsketch.sketches.density.class_passes import STEP
from dpsketch.sketches.density.class_sums import PrivateClassSums
from dpsketch.sketches.density.class_waves import Waves
from dpsketch.sketches.density.private import PrivateDensity
from dpsketch.sketches.density.spec import DensitySpec, read_bounds
from dpsketch.sketches.documents import integer_array, read_charge, read_guarantee, release_header

__all__ = ["KIND", "Fitted", "document_of", "fitted_of"]


KIND = "classes"

_LARGEST = 2.0**64  # beyond every sum, mean and deviation of counts; squares of what is below are doubles
_LEAST = 1e-6  # below the deviation at the largest budget, ρ = 10⁹, of a sum beside corrections


class Fitted(NamedTuple):
    """What a fit released: sums, or a density for each class around a centre; and how points are measured."""

    labels: list[Any]
    features: int
    settings: dict[str, Any]
    guarantee: Guarantee
    charge: Charge | None
    sums: PrivateClassSums | None
    densities: list[PrivateDensity] | None
    centre: Floats | None


def document_of(fitted: Fitted) -> files.Document:
    """Return a fitted classifier as a document of the file format."""
    spec: dict[str, Any] = {"unit": fitted.guarantee.unit.to_json()}
    arrays: dict[str, npt.NDArray[Any] | list[str] | list[bytes]] = {}
    more: dict[str, Any] = {"labels": fitted.labels, "features": fitted.features, "settings": fitted.settings}
    if fitted.sums is not None:
        sums, shape = fitted.sums, fitted.sums.shape
        spec |= {"dim": shape.dim, "kept": shape.kept, "limit": shape.limit}
        more["deviations"] = [sums.deviation, sums.moment_deviation, sums.size_deviation]
        held = {"sums": sums.sums, "sizes": sums.sizes, "mean": shape.mean, "directions": shape.directions}
        arrays |= {name: array for name, array in held.items() if array is not None}
        if sums.corrections is not None:
            arrays["corrections"] = sums.corrections
            if sums.step != STEP:  # files without are as they were
                more["step"] = sums.step
        if sums.moments is not None:
            arrays["moments"] = sums.moments
        if sums.waves is not None and sums.wave_sums is not None:
            arrays["waves"] = sums.wave_sums
            more["waves"] = {**sums.waves.to_json(), "deviation": sums.wave_deviation}
    elif fitted.densities is not None and fitted.centre is not None:
        spec = fitted.densities[0].spec.to_json()
        more["noise"] = fitted.densities[0].noise.to_json()
        arrays |= {"tables": np.stack([each.table for each in fitted.densities]), "centre": fitted.centre}
    return files.Document(KIND, False, release_header(spec, fitted.guarantee, fitted.charge, **more), arrays)


def fitted_of(document: files.Document) -> Fitted:
    """Read a fitted classifier; the file may have been written by anyone."""
    if document.kind != KIND:
        raise FileRefused(f"the file holds a release of {document.kind}, no classifier.")
    refused = ""
    try:
        return _fitted(document)
    except FileRefused:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        refused = type(error).__name__
    raise FileRefused(f"the file's header is not one that a classifier writes ({refused}).")


def _fitted(document: files.Document) -> Fitted:
    header = document.header
    labels, features, settings = header["labels"], header["features"], header["settings"]
    stated = set(settings) if isinstance(settings, dict) else None
    plain = isinstance(labels, list) and len({type(label) for label in labels}) == 1 and len(labels) > 1
    plain = plain and isinstance(labels[0], int | float | str) and isinstance(features, int)
    if not plain or stated != {"kernel", "bounds", "smoothing"}:
        raise FileRefused("the file's classes and settings are not those of a classifier.")
    guarantee, charge = read_guarantee(document), read_charge(document)
    shared = (labels, features, settings, guarantee, charge)
    if "sums" in document.arrays:
        sums = _sums(document, len(labels))
        _check_settings(settings, features, sums.shape.dim, "linear")
        return Fitted(*shared, sums, None, None)
    spec, noise = DensitySpec.from_json(header["spec"]), noise_from_json(header["noise"])
    _check_settings(settings, features, spec.dim, spec.kernel.name)
    if settings["bounds"] is None or not 0 <= settings["smoothing"] < math.inf:
        raise FileRefused("the file's densities need bounds, and a smoothing of at least 0.")
    tables = integer_array(document, "tables", (len(labels), spec.rows, spec.width))
    densities = [PrivateDensity(spec, table, None, noise, None, guarantee=guarantee, charge=charge) for table in tables]
    return Fitted(*shared, None, densities, _floats(document, "centre", (spec.dim,)))


def _check_settings(settings: dict[str, Any], features: int, dim: int, kernel: str) -> None:
    """Refuse settings by which the classes could not be asked."""
    if features != dim or settings["kernel"] != kernel:
        raise FileRefused("the file's features and kernel are not those of its spec.")
    read_bounds(settings["bounds"], dim)
    real_number("smoothing", settings["smoothing"])


def _sums(document: files.Document, classes: int) -> PrivateClassSums:
    shape = stored_map(document)
    deviation, spread, size = map(_deviation, document.header["deviations"])
    found = PrivateClassSums(shape, integer_array(document, "sums", (classes, shape.kept)), deviation)
    if "corrections" in document.arrays:
        if deviation < _LEAST:  # lengths that corrections are scaled by could be 0
            raise FileRefused("the file's corrections stand beside sums without noise, which no budget pays for.")
        step = real_number("step", document.header.get("step", STEP))
        if not 0 < step <= 1:
            raise FileRefused("the file's corrections move classes by steps that no pass takes.")
        found = replace(found, corrections=integer_array(document, "corrections", found.sums.shape), step=step)
    if "moments" not in document.arrays:
        return found
    moments = _floats(document, "moments", (shape.kept, shape.kept))
    sizes = integer_array(document, "sizes", (classes,))
    found = replace(found, moments=moments, sizes=sizes, moment_deviation=spread, size_deviation=size)
    stated = document.header.get("waves")
    if stated is None:
        return found
    noise = _deviation(stated["deviation"])
    waves = Waves.from_json({name: value for name, value in stated.items() if name != "deviation"}, shape.kept)
    table = integer_array(document, "waves", (classes, waves.features))
    return replace(found, waves=waves, wave_sums=table, wave_deviation=noise)


def _deviation(value: Any) -> float:
    number = real_number("deviation", value)
    if not 0 <= number <= _LARGEST:
        raise FileRefused("the file's noise has a deviation that no noise has.")
    return number


def _floats(document: files.Document, name: str, shape: tuple[int, ...]) -> Floats:
    array = document.arrays.get(name)
    if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.shape != shape:
        raise FileRefused(f"the file's array {name!r} does not have the shape that its spec prescribes.")
    if not np.all(np.abs(array) <= _LARGEST):
        raise FileRefused(f"the file's array {name!r} holds what no sum of counts is.")
    return array
