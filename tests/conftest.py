"""Fixtures that every test may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpsketch import noise


@pytest.fixture
def seeded() -> Iterator[None]:
    """Noise that repeats: every run of the test draws the same."""
    with noise.seeded_noise_for_tests_only(20220818):
        yield


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data, or a skip that says what was left out."""
    folder = os.environ.get("DPSKETCH_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("real data: DPSKETCH_DATA is not set to a folder")
    return Path(folder)
