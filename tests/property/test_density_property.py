"""What holds for every stream of points: merging, order, and the bound on one unit's influence."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import dpsketch as dps
from dpsketch import files, kernels, noise
from dpsketch.sketches.density import DensitySketch, PrivateDensity
from dpsketch.sketches.density.functions import row_functions
from sensitive import everything

KERNELS = (
    kernels.Euclidean(2, 1.0),
    kernels.Euclidean(2, (0.5, 3.0), power=2),
    kernels.Manhattan(2, 1.0),
    kernels.Angular(2, 3),
)
coordinates = st.floats(-1e6, 1e6) | st.integers(-3, 3).map(float)
streams = st.lists(st.tuples(coordinates, coordinates), max_size=25)
specs = st.tuples(st.sampled_from(KERNELS), st.integers(2, 12), st.integers(0, 2**64 - 1))
relations = st.sampled_from(["add_remove", "replace"])


def start(spec: tuple[kernels.Kernel, int, int], unit: dps.Unit | None = None, **more: object) -> DensitySketch:
    kernel, rows, seed = spec
    return DensitySketch(kernel=kernel, rows=rows, seed=seed, unit=unit or dps.per_record(), **more)


def build(spec: tuple[kernels.Kernel, int, int], stream: list[tuple[float, float]], **more: object) -> DensitySketch:
    sketch = start(spec, **more)
    sketch.update(np.array(stream, dtype=float).reshape(-1, 2))
    return sketch


def content(sketch: DensitySketch) -> np.ndarray:
    return np.asarray(files.decode(sketch.to_sensitive_bytes(), allow_sensitive=True).arrays["counters"])


def check_moved(sketch: DensitySketch, neighbour: DensitySketch) -> None:
    moved = (content(sketch) - content(neighbour)).astype(float)
    bound = sketch.spec.tables()[0].between(sketch.spec.unit.neighbours)
    assert np.abs(moved).sum() <= bound.l1
    assert math.sqrt((moved**2).sum()) <= bound.l2


@settings(deadline=None, max_examples=60)
@given(specs, streams, st.data())
def test_merging_any_split_equals_one_pass(spec, stream, data) -> None:
    whole = build(spec, data.draw(st.permutations(stream)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    parts = [build(spec, stream[a:b]) for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    order = data.draw(st.permutations(range(len(parts))))
    merged = parts[order[0]]
    for index in order[1:]:
        merged.merge(parts[index])
    assert everything(merged) == everything(whole)


@settings(deadline=None, max_examples=40)
@given(specs, streams, streams, streams)
def test_merge_commutes_and_associates(spec, a, b, c) -> None:
    def merged(first: DensitySketch, *others: DensitySketch) -> DensitySketch:
        for other in others:
            first.merge(other)
        return first

    left = merged(merged(build(spec, a), build(spec, b)), build(spec, c))
    right = merged(build(spec, c), merged(build(spec, b), build(spec, a)))
    assert everything(left) == everything(right)


@settings(deadline=None, max_examples=100)
@given(specs, streams, st.tuples(coordinates, coordinates), st.tuples(coordinates, coordinates), relations)
def test_one_record_moves_the_table_by_at_most_the_sensitivity(spec, stream, one, other, relation) -> None:
    unit = dps.per_record(neighbours=relation)
    neighbour = stream if relation == "add_remove" else [*stream, other]
    check_moved(build(spec, [*stream, one], unit=unit), build(spec, neighbour, unit=unit))


@settings(deadline=None, max_examples=60)
@given(
    specs, st.lists(st.tuples(st.integers(0, 3), coordinates, coordinates), max_size=25), st.integers(1, 4), relations
)
def test_one_user_moves_the_table_by_at_most_the_sensitivity(spec, records, points, relation) -> None:
    """User 0 is removed, or replaced by user 1's records under another name."""

    def built(chosen: list[tuple[int, float, float]]) -> DensitySketch:
        sketch = start(spec, dps.per_user(max_keys=points, neighbours=relation))
        sketch.update(np.array([r[1:] for r in chosen], dtype=float).reshape(-1, 2), users=[r[0] for r in chosen])
        return sketch

    others = [record for record in records if record[0] != 0]
    newcomer = [(9, x, y) for user, x, y in records if user == 1] if relation == "replace" else []
    check_moved(built(records), built(others + newcomer))


@settings(deadline=None, max_examples=40)
@given(specs, streams, st.tuples(coordinates, coordinates), st.integers(0, 2**32))
def test_one_row_a_record_moves_one_counter(spec, stream, one, seed) -> None:
    """With the same draws for the records they share, two neighbours differ in one counter: the last record's."""
    with noise.seeded_noise_for_tests_only(seed):
        sketch, neighbour = start(spec, placement="one_row"), start(spec, placement="one_row")
        sketch.update(np.array(stream, dtype=float).reshape(-1, 2))
    with noise.seeded_noise_for_tests_only(seed):
        neighbour.update(np.array(stream, dtype=float).reshape(-1, 2))
        neighbour.update([list(one)])
    check_moved(neighbour, sketch)
    assert neighbour.spec.tables()[0].move.l1 == 1
    assert content(neighbour).sum() == len(stream) + 1


@settings(deadline=None, max_examples=40)
@given(specs, streams, st.sampled_from([0.0, 0.3]))
def test_releases_round_trip(spec, stream, share) -> None:
    private = build(spec, stream).release(rho=0.5, count_share=share)
    again = PrivateDensity.from_document(files.decode(files.encode(private.to_document()), allow_sensitive=False))
    assert np.array_equal(again.table, private.table)
    assert (again.spec, again.noise, again.guarantee) == (private.spec, private.noise, private.guarantee)


@settings(deadline=None, max_examples=60)
@given(specs, streams, st.tuples(coordinates, coordinates))
def test_estimates_are_means_of_the_counters_that_a_point_hashes_to(spec, stream, query) -> None:
    sketch = build(spec, stream)
    private = sketch.release(epsilon=1.0, delta=1e-6)
    kernel, rows, seed = spec
    columns = row_functions(kernel, rows, seed).columns(np.array([query]), sketch.spec.width)[0]
    mean = np.mean([private.table[r, c] for r, c in enumerate(columns)])
    if sketch.spec.collides:
        width = sketch.spec.width
        mean = (width * mean - private.count().value[0]) / (width - 1)
    assert math.isclose(private.estimate([list(query)]).value[0], mean, rel_tol=1e-9, abs_tol=1e-9)
