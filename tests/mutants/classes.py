"""Mutants of classes by the sums of their vectors, and of kernel sums by features."""

from __future__ import annotations

from tests.mutants.gate import Mutant

_SUMS = "sketches/density/class_sums.py"
_TESTS = "tests/unit/test_class_sums.py -k"
_FEATURES = "tests/unit/test_density_features.py -k"

CLASSES = [
    Mutant(
        "class-sums-replace",
        _SUMS,
        "turned, apart = (2.0, math.nextafter(math.sqrt(2), 2)) if replaced else (1.0, 1.0)",
        "turned, apart = (1.0, 1.0) if replaced else (1.0, 1.0)",
        f"{_TESTS} one_record_moves␣and␣replace",
        "a record that turns round moves a sum by 2, and 1 is paid",
    ),
    Mutant(
        "class-sums-users",
        _SUMS,
        "records, replaced = unit.max_keys, unit",
        "records, replaced = 1, unit",
        f"{_TESTS} a_user_moves",
        "a user's vectors are paid for as one record's",
    ),
    Mutant(
        "class-sums-half-noise",
        _SUMS,
        "sums = permit.add_noise(held.table, SUMS)",
        "sums = (held.table + permit.add_noise(held.table, SUMS)) // 2",
        f"{_TESTS} the_noise_is␣and␣plain",
        "half the noise on the class sums",
    ),
    Mutant(
        "class-sums-one-draw",
        _SUMS,
        "sums = permit.add_noise(held.table, SUMS)",
        "sums = held.table + (permit.add_noise(held.table, SUMS) - held.table)[0]",
        f"{_TESTS} the_noise_is␣and␣plain",
        "all classes have the same noise",
    ),
    Mutant(
        "class-moments-half-noise",
        _SUMS,
        "moments[triangle] = noisy / weights / _COARSE**2",
        "exact = weights * held.squares[triangle]\n"
        "        moments[triangle] = (exact + noisy) / 2 / weights / _COARSE**2",
        f"{_TESTS} the_noise_is␣and␣moments",
        "half the noise on the second moments",
    ),
    Mutant(
        "class-sizes-half-noise",
        _SUMS,
        "sizes = permit.add_noise(held.sizes, SIZES)",
        "sizes = (held.sizes + permit.add_noise(held.sizes, SIZES)) // 2",
        f"{_TESTS} the_noise_is␣and␣moments",
        "half the noise on the class sizes",
    ),
    Mutant(
        "class-moments-weights",
        _SUMS,
        "_DIAGONAL, _OTHERS = 5, 7",
        "_DIAGONAL, _OTHERS = 5, 14",
        f"{_TESTS} one_record_moves␣and␣moments",
        "second moments off the diagonal weigh more than is paid for",
    ),
    Mutant(
        "vectors-unclipped",
        "_compiled/vectors.py",
        "if square > 0 and (unit_length or largest > 1.0 or square > FINE * FINE):",
        "if square > 0 and unit_length:",
        f"{_TESTS} integers_are_those",
        "vectors longer than 1 count in full",
    ),
    Mutant(
        "vectors-no-number",
        "_compiled/vectors.py",
        "np.int64(value * FINE) if abs(value) <= 1.0 else 0",
        "np.int64(value * FINE)",
        f"{_TESTS} no_number",
        "what is no number becomes an integer of any size",
    ),
    Mutant(
        "bounds-beyond-doubles",
        "sketches/density/spec.py",
        "0 < (high - low) / 2 < math.inf and math.isfinite(low + high)",
        "True",
        f"{_TESTS} cannot_measure",
        "between such bounds every record becomes an integer of any size",
    ),
    Mutant(
        "vectors-size-limit",
        "_compiled/vectors.py",
        "if sizes > 0 and total > sizes:",
        "if False:",
        f"{_TESTS} one_record_moves␣and␣pure",
        "Laplace noise is for a sum of sizes that nobody holds vectors to",
    ),
    Mutant(
        "embedding-products-in-floats",
        "sketches/density/embedding.py",
        "fine = _whole(points, _FINE) - self.mean",
        "fine = points * _FINE - self.mean / 3",
        f"{_TESTS} multiplied_exactly",
        "a product of floats depends on the batch",
    ),
    Mutant(
        "features-length",
        "_compiled/vectors.py",
        "while square > squares:",
        "while False:",
        f"{_FEATURES} held_on_the_integers",
        "features that came out too long count in full",
    ),
    Mutant(
        "features-rounded-away",
        "_compiled/vectors.py",
        "vector[j] = np.int64(value * steps) if abs(value) <= 2.0 else 0",
        "vector[j] = np.int64(np.floor(value * steps + 0.5)) if abs(value) <= 2.0 else 0",
        f"{_FEATURES} held_on_the_integers",
        "features are rounded to the nearest step, and may be longer than they were",
    ),
    Mutant(
        "features-by-batch",
        "sketches/density/features.py",
        "return compiled.wave_features(_scaled(points, self.shape), self.matrix, self.sizes)",
        "angles = np.pi * (_scaled(points, self.shape) @ self.matrix)\n"
        "                waves = self.sizes[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=2)\n"
        "                return np.ascontiguousarray(waves.reshape(len(points), -1))",
        "tests/property/test_batch_independence.py -k no_matrix_product",
        "a product over the batch: a record's features follow the others'",
    ),
    Mutant(
        "features-replace",
        "sketches/density/spec.py",
        "return Sensitivity(times * points * sizes, times * points * _root(squares))",
        "return Sensitivity(times * points * sizes, points * _root(squares))",
        f"{_FEATURES} no_unit_moves␣and␣linear",
        "a record that turns round moves a sum of features by 2, and 1 is paid",
    ),
    Mutant(
        "features-users",
        "sketches/density/spec.py",
        "return Sensitivity(times * points * sizes, times * points * _root(squares))",
        "return Sensitivity(times * sizes, times * _root(squares))",
        f"{_FEATURES} no_unit_moves␣and␣fourier",
        "a user's points are paid for as one",
    ),
    Mutant(
        "features-sizes",
        "sketches/density/features.py",
        "return Contribution(STEPS**2, math.isqrt(self.rows * self.width * STEPS**2))",
        "return Contribution(STEPS**2, STEPS)",
        f"{_FEATURES} laplace_noise_is",
        "Laplace noise for the length of features, not for the sum of their sizes",
    ),
    Mutant(
        "features-landmarks-left",
        "sketches/density/private.py",
        "left = features[:, -1] * max(0.0, sums[-1] + deviation)",
        "left = 0.0 * features[:, -1]",
        f"{_FEATURES} landmarks_that_are_far",
        "intervals leave out what landmarks do not explain",
    ),
]
