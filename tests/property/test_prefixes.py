"""Prefixes of keys, by which heavy hitters descend: their numbers are undone, and all that may follow is a child."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsketch.sketches.heavy.spec import KeySpace, TextKeys


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=5), max_size=20), st.integers(1, 4))
def test_numbers_of_prefixes_are_undone(words: list[bytes], size: int) -> None:
    space = KeySpace("text", size, 0)
    keys = space.parse(pa.chunked_array([pa.array(words, pa.binary())])).cut(space.dense_depth)
    cells = keys.cells(space.dense_depth)
    assert np.all(cells < space.dense_cells - 1)
    again = space.from_cells(cells)
    assert isinstance(again, TextKeys)
    assert again.plain() == keys.plain()
    assert np.array_equal(again.prints(), keys.prints())
    joined = space.join([keys, again.take(np.arange(len(words))[::2])])
    assert joined.plain() == keys.plain() + keys.plain()[::2]


@settings(max_examples=30)
@given(st.lists(st.binary(min_size=1, max_size=4), min_size=1, max_size=4), st.integers(2, 4))
def test_children_are_all_that_may_follow(words: list[bytes], size: int) -> None:
    """A key is among the children of its own prefix: cut one byte less, or itself where it ends there."""
    space = KeySpace("text", size, 0)
    words = [word[:size] for word in words]
    keys = space.parse(pa.chunked_array([pa.array(words, pa.binary())]))
    for depth in range(size):
        reaching = keys.reaching(depth)
        live = keys if reaching is None else keys.take(np.flatnonzero(reaching))
        parents = live.cut(depth)
        children = parents.children(depth, np.arange(257 * len(live)))
        assert np.array_equal(parents.children_prints(depth), children.prints())
        some = np.arange(257 * len(live))[::-5]
        assert parents.children(depth, some).plain() == children.take(some).plain()
        prints = children.prints().reshape(len(live), 257)
        for own, wanted in zip(prints, live.cut(depth + 1).prints(), strict=True):
            assert len(set(own.tolist())) == 257
            assert wanted in own
