"""What commands advise: hints and messages name the options that they are about, and taking the advice works."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps

Runner = Callable[..., Any]

BUDGET = ("--epsilon", 1, "--delta", 0, "--no-ledger")
RELEASED = ("--epsilon", 1, "--delta", "1e-6", "--no-ledger")


@pytest.fixture
def visits(tmp_path: Path) -> str:
    rows = "".join(f"u{i % 50},{i % 12}\n" for i in range(3000))
    (tmp_path / "visits.csv").write_text("user_id,hour\n" + rows)
    return "visits.csv"


@pytest.mark.parametrize("exact", [(), ("--exact",)])
def test_different_keys_without_a_user_come_with_a_hint(dpsketch: Runner, visits: str, exact: tuple[str, ...]) -> None:
    asked = ("run", "distinct", visits, *exact, *BUDGET, "--dry-run", "--json")
    alone = dpsketch(*asked, "--key", "user_id")
    (options,) = re.findall(r"add (--user user_id --max-keys 1):", alone.err)
    advised = dpsketch(*asked, "--key", "user_id", *shlex.split(options))
    assert advised.code == 0, advised.err
    assert "Note" not in advised.err
    assert advised.json["guarantee"]["unit"]["level"] == "user"
    assert advised.json["noise_scale"] == alone.json["noise_scale"], "the hint says that the noise is the same"
    assert "add --user COLUMN" in dpsketch(*asked, "--key", "user_id,hour").err
    histogram = dpsketch("run", "histogram", visits, "--key", "user_id", *RELEASED, "--dry-run")
    assert "without --user" not in histogram.err


def test_the_domain_that_sparse_advises_is_one_that_it_takes(dpsketch: Runner, visits: str) -> None:
    asked = ("run", "sparse", visits, "--key", "user_id", "--key-type", "text", *BUDGET, "-o", "s.dps")
    refused = dpsketch(*asked, "--domain", 100)
    assert refused.code != 0
    (domain,) = re.findall(r"--domain (\S+?)[,.]? ", refused.err)
    assert dpsketch(*asked, "--domain", domain).code == 0


@pytest.mark.parametrize("keys", [["10", "9", "-1", "2.5"], [10, 9, -1, 2]])
def test_numeric_keys_are_drawn_in_numeric_order(keys: list[Any]) -> None:
    histogram = dps.Histogram(unit=dps.per_record())
    histogram.update([key for at, key in enumerate(keys) for _ in range(100 * (9 - at))])
    release = histogram.release(epsilon=1.0, delta=1e-6)
    figure = release.plot()
    (axes,) = figure.axes
    drawn = sorted(zip(axes.get_yticks(), [text.get_text() for text in axes.get_yticklabels()], strict=True))
    upwards = [name for _, name in drawn]
    assert upwards[::-1] == [str(key) for key in sorted(keys, key=float)]
    lengths = {text: bar.get_width() for (_, text), bar in zip(drawn[::-1], axes.patches, strict=True)}
    assert lengths == {str(row.key): row.value for row in release.top(9)}
