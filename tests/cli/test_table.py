"""dpsketch table: a private GROUP BY from the shell, and questions to the released file."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import dpsketch as dps
from dpsketch.sketches.table.private import PrivateTable

BUDGET = ["--epsilon", "1", "--delta", "1e-6"]
RECORDS = 12_000
RUN = ["table", "events.parquet", *BUDGET]
BY = [*RUN, "--by", "country"]


@pytest.fixture(scope="module")
def events() -> pa.Table:
    """12,000 visits of 1,500 visitors: 2,400 in FR and 1,600 in US on each of three days."""
    rng = np.random.default_rng(7)
    number = np.arange(RECORDS)
    day = np.datetime64("2026-01-01") + (number % 3).astype("timedelta64[D]")
    return pa.table(
        {
            "country": pa.array(np.where(number % 5 < 3, "FR", "US")),
            "day": pa.array(day),
            "ts": pa.array(day.astype("datetime64[us]") + rng.integers(0, 86_399, RECORDS).astype("timedelta64[s]")),
            "visitor": pa.array(number // 3 % 1500),
            "amount": pa.array(np.round(rng.uniform(5, 25, RECORDS), 2)),
        }
    )


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, events: pa.Table) -> None:
    pa.parquet.write_table(events, tmp_path / "events.parquet")


def loaded(path: str = "t.dps") -> Any:
    return dps.load(path)


def test_the_command_of_the_public_contract(dpsketch: Any) -> None:
    """Each number is checked at over eight standard deviations of its noise: fails in one run of 10¹² at most."""
    made = dpsketch(
        "table", "events.parquet", "--by", "country,day", "--user", "visitor", "--count", "--users", "--sum", "amount",
        "--mean", "amount", "--quantiles", "amount:.5,.9", "--epsilon", "1", "--delta", "1e-6", "-o", "t.dps",
    )  # fmt: skip
    assert made.code == 0, made.err
    private = loaded()
    names = ["count", "users", "sum_amount", "mean_amount", "quantile_amount_0.5", "quantile_amount_0.9"]
    assert private.columns == ["country", "day", *(f"{name}{end}" for name in names for end in ("", "_low", "_high"))]
    frame = private.to_arrow()
    assert frame.num_rows == 6
    assert str(frame.schema.field("day").type) == "date32[day]"
    assert sum(frame["count"].to_pylist()) == pytest.approx(RECORDS, rel=0.4)
    assert made.out == private.to_text(20) + "\n"
    said = " ".join(made.err.split())
    for words in (
        "Read 12,000 records.",
        "Charged to dataset 'events.parquet'",
        "(bounds chosen privately)",
        "All groups that are not listed, together: count",
        f"Guarantee: {private.guarantee}",
    ):
        assert words in said, words


def test_options_are_the_arguments_of_a_table(dpsketch: Any, events: pa.Table) -> None:
    made = dpsketch(
        *RUN, "--by", "country, date_trunc('month', ts) AS month", "--sum", "amount=0:25",
        "--mean", "(amount * 2) AS double=-1:5e1", "--quantiles", "amount:.9,.5=0:25", "--grid", "amount=0.01",
        "--importance", "sum_amount=4", "--importance", "quantile_amount=2", "--neighbours", "replace",
        "--where", "amount < 20", "--names", "more", "--no-ledger", "-o", "t.dps",
    )  # fmt: skip
    assert made.code == 0, made.err
    spec = loaded().spec
    assert spec.by == ("country", "month")
    assert spec.types == ("text", "timestamp")
    assert spec.unit == dps.per_record(neighbours="replace")
    assert spec.columns == (
        dps.sum("amount", bounds=(0, 25), weight=4),
        dps.mean("double", bounds=(-1, 50)),
        dps.quantiles("amount", [0.5, 0.9], bounds=(0, 25), grid=0.01, weight=2),
    )
    assert f"Read {np.count_nonzero(np.asarray(events['amount']) < 20):,} records" in made.err
    users = ["--user", "visitor", "--max-keys", "4", "--max-records", "3", "--mean", "amount", "--over", "users"]
    made = dpsketch(*BY, *users, "--no-ledger", "-o", "u.dps")
    assert made.code == 0, made.err
    spec = loaded("u.dps").spec
    assert (spec.unit, spec.max_records) == (dps.per_user(max_keys=4), 3)
    assert spec.columns == (dps.mean("amount", over="users"),)


def test_records_that_lack_something_are_skipped_and_only_the_terminal_says_so(dpsketch: Any, tmp_path: Path) -> None:
    lines = ["FR,ann,5"] * 400 + [",ann,5", "FR,,5", "FR,ann,", "FR,bob,7"]
    (tmp_path / "t.csv").write_text("country,who,amount\n" + "".join(f"{line}\n" for line in lines))
    columns = ["--by", "country", "--sum", "amount", "--user", "who"]
    made = dpsketch("table", "t.csv", *columns, *BUDGET, "--no-ledger", "-o", "t.dps")
    assert made.code == 0, made.err
    assert "Read 404 records, 3 of them skipped because a value is missing." in made.err
    assert "A record that lacks any of country, who, amount counts in no column." in made.err
    assert b"404" not in (tmp_path / "t.dps").read_bytes()


@pytest.mark.parametrize(
    ("by", "name", "text", "groups", "truth"),
    [
        ("date_trunc('day', ts)", "g.txt", "2026-01-02\n", ["2026-01-02 00:00:00"], 4000),
        ("day,visitor", "g.txt", "visitor,day\n3,2026-01-01\n", [("2026-01-01", "3")], 3),
    ],
)
def test_a_public_list_is_read_as_the_groups_are(
    dpsketch: Any, tmp_path: Path, by: str, name: str, text: str, groups: list[Any], truth: int
) -> None:
    """A day of a timestamp is its midnight: a list of days would otherwise name groups that nobody is in."""
    (tmp_path / name).write_text(text)
    pure = ("--epsilon", "1", "--delta", "0", "--groups", name)
    made = dpsketch("table", "events.parquet", "--by", by, *pure, "-o", "t.dps")
    assert made.code == 0, made.err
    assert loaded().groups == groups
    assert abs(loaded().to_arrow()["count"][0].as_py() - truth) < 35  # noise of scale 1: more with probability e⁻³⁵


def test_questions_to_a_table(dpsketch: Any) -> None:
    made = dpsketch(*RUN, "--by", "country,day", "--count", "--mean", "amount=0:30", "--no-ledger", "-o", "t.dps")
    assert made.code == 0, made.err
    private = loaded()
    asked = dpsketch("query", "t.dps")
    assert asked.out == private.to_text(None) + "\n"
    assert f"Guarantee: {private.guarantee}" in asked.err
    some = dpsketch("query", "t.dps", "US,2026-01-03", "FR,2026-01-01", "--json").json
    assert [(row["country"], row["day"]) for row in some["rows"]] == [("US", "2026-01-03"), ("FR", "2026-01-01")]
    assert some["meanings"]["mean_amount"] == "mean of amount, clipped to 0 to 30"
    rolled = dpsketch("query", "t.dps", "--rollup", "country", "--csv")
    assert list(csv.DictReader(io.StringIO(rolled.out))) == [
        {name: str(value) for name, value in row.items()} for row in private.rollup("country").to_json()
    ]
    blank = dpsketch("query", "t.dps", "--max-relative-error", "1e-9", "--json").json["rows"]
    assert {row["count"] for row in blank} == {None}
    shown = dpsketch("inspect", "t.dps", "--json").json
    assert shown["bounds"] == {"mean_amount": [0, 30]}
    assert dpsketch("query", "t.dps", "DE,2026-01-01").code == 2


def test_without_a_file_the_whole_table_is_printed_and_charged(
    dpsketch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preview reads and charges nothing; and a charge whose table was lost is named."""
    (tmp_path / "g.txt").write_text("".join(f"{i}\n" for i in range(30)))
    command = [*RUN, "--by", "visitor", "--count", "--groups", "g.txt"]
    assert "Would release: ε = 1, for each record" in dpsketch(*command, "--dry-run").out
    assert dpsketch("ledger", "show", "--json").json["datasets"] == []
    made = dpsketch(*command)
    assert made.code == 0, made.err
    assert len(made.out.splitlines()) == 31
    assert "kept nowhere" in made.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dpsketch", "events.parquet", "g.txt"]
    assert len(dpsketch(*command, "--json").json["rows"]) == 30
    assert len(dpsketch("ledger", "history", "events.parquet", "--json").json["charges"]) == 2

    def broken(self: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(PrivateTable, "__post_init__", broken)
    lost = dpsketch(*command)
    assert lost.code == 1
    assert "charge 3 to dataset 'events.parquet' was made, and its release was lost" in " ".join(lost.err.split())


REFUSED = [
    (["--by", "country,country"], "each once", 2),
    (["--by", "country", "--mean", "amount", "--over", "users"], "--user", 2),
    (["--by", "random() AS r"], "which is not one of those allowed", 2),
    (["--by", "country", "--sum", "amount", "--sum", "amount"], "one name", 2),
    (["--by", "(upper(country)) AS visitor", "--user", "visitor"], "would replace", 2),
    (["--by", "country", "--sum", "price"], "no column 'price'", 1),
    (["--by", "country", "--delta", "0"], "public list: --groups FILE", 2),
    (["--by", "country", "--groups", "events.csv"], "first line names the columns country", 1),
    # What is printed is checked as well: nobody could read what was paid for.
    (["--by", "country", "--confidence", "95"], "confidence", 2),
    (["--by", "country", "--max-relative-error", "nan"], "relative", 2),
    (["--by", "country", "--parquet", "nowhere/x.parquet"], "its folder does not exist", 2),
    (["--by", "country", "--sum", "amount=low:high"], "bounds", 2),
]


@pytest.mark.parametrize(("options", "words", "code"), REFUSED)
def test_what_cannot_be_released_is_refused_before_anything_is_charged(
    dpsketch: Any, tmp_path: Path, options: list[str], words: str, code: int
) -> None:
    (tmp_path / "events.csv").write_text("town\nFR\n")
    budget = ["--epsilon", "1"] if "--delta" in options else BUDGET
    refused = dpsketch("table", "events.parquet", *options, *budget, "-o", "t.dps")
    assert (refused.code, words in " ".join(refused.err.split())) == (code, True), refused.err
    assert "Read" not in refused.err
    assert not (tmp_path / "t.dps").exists()
    assert dpsketch("ledger", "show", "--json").json["datasets"] == []


def test_control_characters_of_names_are_escaped(dpsketch: Any, tmp_path: Path) -> None:
    """The group has 400 records: it is listed unless noise takes more than 350 away."""
    pa.parquet.write_table(pa.table({"name": ["a\x1b[2J\nb"] * 400}), tmp_path / "t.parquet")
    made = dpsketch("table", "t.parquet", "--by", "name", *BUDGET, "--no-ledger", "-o", "t.dps")
    assert made.code == 0, made.err
    for shown in (made, dpsketch("query", "t.dps"), dpsketch("query", "t.dps", "--markdown")):
        assert "\x1b" not in shown.out
        assert "a\\x1b[2J\\nb" in shown.out
