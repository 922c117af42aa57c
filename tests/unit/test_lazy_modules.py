"""Modules that load when used."""

from __future__ import annotations

import copy
import pickle

from dpsketch.lazy import arrow_compute


def test_a_module_that_is_loaded_later_is_copied_and_pickled_by_its_name() -> None:
    """Spark pickles functions with what they refer to; a copy without a name would ask itself for it for ever."""
    for copied in (copy.copy(arrow_compute), copy.deepcopy(arrow_compute), pickle.loads(pickle.dumps(arrow_compute))):
        assert copied.equal is arrow_compute.equal
