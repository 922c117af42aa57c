"""Which functions a coverage result depends on: measured on this checkout, so that it says nothing in a copy of it."""

from __future__ import annotations

from benchmarks.coverage import stored
from benchmarks.coverage.cases import all_cases


def test_a_result_is_held_to_what_computes_answers_and_draws_noise() -> None:
    """Compiled code that ran included; not what takes records in for all kinds, nor what is loaded and does not run."""
    cases = {case.name: case for _, _, case in all_cases("DistinctSketch, 100 keys|users of 5 keys, 5×1024")}
    distinct = stored.functions_of(cases["DistinctSketch, 100 keys, 1,024 buckets, δ = 0"])
    counts = stored.functions_of(cases["CountSketch, users of 5 keys, 5×1024, δ > 0"])
    assert distinct[-1] == "benchmarks/coverage/values.py:distinct"
    files = {place.partition(":")[0]: place.partition(":")[2].split(",") for place in counts}
    assert any(place.startswith("src/dpsketch/noise.py:") for place in distinct)
    assert "PrivateCountSketch.estimate" in files["src/dpsketch/sketches/countsketch/private.py"]
    assert files["src/dpsketch/_compiled/countsketch.py"] != []
    assert "benchmarks/coverage/data.py" in files
    for left_out in ("sketches/countsketch/decoding.py", "sketches/sketch.py"):
        assert f"src/dpsketch/{left_out}" not in files
