"""Days of a stream from the command line: begun, gone on with, asked again, and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

import dpsketch as dps
from dpsketch.sketches.continual.folder import StreamFolder
from ledgers import begun


@pytest.fixture
def visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("budget.db", "other.db"):
        begun(name)
    Path("visits.csv").write_text("url,who\n/a,ann\n/a,bob\n/b,ann\n", encoding="utf-8")
    return tmp_path


BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--ledger", "budget.db", "--dataset", "web"]
STREAM = ["--continual", "days=30", "--state", "state", "--width", "64", "--rows", "3"]


def command(day: str, output: str, *more: str, stream: list[str] = STREAM, budget: list[str] = BUDGET) -> list[str]:
    keys = ["run", "counts", "visits.csv", "--key", "url", "--key-type", "text"]
    return [*keys, *budget, *stream, "--day", day, "-o", output, *more]


@pytest.mark.usefixtures("visits")
def test_days_go_on_and_gaps_are_published(dpsketch) -> None:
    begun = dpsketch(*command("2026-11-15", "a.dps"))
    assert "Charged to dataset 'web'" in begun.err
    said = dpsketch(*command("2026-11-15", "again.dps"))
    assert "was published before" in said.err
    assert "Nothing was charged: dataset 'web' paid for all days" in said.err
    first, again = dps.load("a.dps"), dps.load("again.dps")
    assert (first.table == again.table).all()
    later = dpsketch(*command("2026-11-18", "b.dps"))
    assert (later.code, "Nothing was charged" in later.err, "Charged to" in later.err) == (0, True, False)
    sketch = StreamFolder("state").load()
    assert sketch.days_published == 4
    assert sketch.curve("/a").key == [f"2026-11-{day}" for day in (15, 16, 17, 18)]
    change = dps.load("b.dps") - first
    assert change.noise_scale == pytest.approx(sketch.between(2, 4).noise_scale)
    [entry] = dps.Ledger("budget.db").history("web")
    assert "30 days" in entry.note


@pytest.mark.usefixtures("visits")
def test_what_a_stream_spends_of_a_total_is_told_when_it_begins(dpsketch) -> None:
    """Its release has the charge of its file, which knows no total: what is told comes from the charge itself."""
    dps.Ledger("budget.db").create("web", epsilon=2, delta=1e-6, unit=dps.per_record())
    begun = dpsketch(*command("2026-11-15", "a.dps"))
    assert "Charged to dataset 'web': ε=1.00 of 2.00 at δ=1e-6 spent in 1 release." in begun.err


@pytest.mark.usefixtures("visits")
def test_all_days_in_one_file_are_asked_and_drawn_over_time(dpsketch) -> None:
    Path("published").mkdir()
    series = ["--series", "published/web.dps"]
    for day in ("2026-11-15", "2026-11-17"):
        assert dpsketch(*command(day, f"{day}.dps", *series)).code == 0
    file, stream = "published/web.dps", StreamFolder("state").load()
    curve = json.loads(dpsketch("query", file, "/a", "--curve", "1", "--json").out)
    assert [each["key"] for each in curve["estimates"]] == ["2026-11-15", "2026-11-16", "2026-11-17"]
    values = stream.curve("/a", window=1).value
    assert [each["value"] for each in curve["estimates"]] == pytest.approx(values.tolist())
    for days, (first, last) in {"2:3": (2, 3), "3": (3, 3)}.items():
        (found,) = json.loads(dpsketch("query", file, "/a", "--days", days, "--json").out)["estimates"]
        assert found["value"] == pytest.approx(stream.between(first, last).estimate(["/a"]).value[0])
    Path("keys.txt").write_text("/a\n/b\n", encoding="utf-8")
    assert "/a" in dpsketch("top", file, "--candidates", "keys.txt", "--days", "1:3").out
    assert "/a" in dpsketch("top", file, "--candidates", "keys.txt").out
    assert dpsketch("plot", file, "--key", "/a", "--curve", "total", "-o", "time.svg").code == 0
    assert "day" in Path("time.svg").read_text(encoding="utf-8")
    facts = json.loads(dpsketch("inspect", file, "--json").out)
    assert (facts["days_published"], facts["last_day"]) == (3, "2026-11-17")
    refusals = {
        "one key": ["query", file, "/a", "/b", "--curve", "7"],
        "number of days": ["query", file, "/a", "--curve", "week"],
        "as in 8:14": ["query", file, "/a", "--days", "first"],
        "published days": ["query", "2026-11-15.dps", "/a", "--days", "1"],
        "go together": ["plot", file, "--key", "/a", "-o", "other.svg"],
        "another folder": command("2026-11-18", "c.dps", "--series", "state/web.dps"),
        "name that as well": ["run", "counts", "visits.csv", "--key", "url", *BUDGET, "-o", "d.dps", *series],
    }
    for words, asked in refusals.items():
        refused = dpsketch(*asked)
        assert refused.code != 0
        assert words in " ".join(refused.err.split())


@pytest.mark.usefixtures("visits")
def test_a_state_that_may_be_seized(dpsketch) -> None:
    stream = ["--continual", "days=30,design=pan-private", "--state", "state", "--width", "64", "--rows", "3"]
    assert dpsketch(*command("2026-11-15", "a.dps", stream=stream)).code == 0
    assert "seizure" in dpsketch(*command("2026-11-16", "b.dps", stream=stream)).err
    sketch = StreamFolder("state").load()
    assert (sketch.design.name, sketch.days_published, sketch.skipped_nulls) == ("pan-private", 2, 0)
    assert "another design" in dpsketch(*command("2026-11-17", "c.dps")).err


@pytest.mark.usefixtures("visits")
def test_users_of_a_stream(dpsketch) -> None:
    stream = ["--continual", "days=30,user-days=4,days-apart=7,objective=totals", "--state", "state", "--width", "64"]
    users = ["--user", "who", "--max-keys", "2"]
    assert dpsketch(*command("2026-11-15", "a.dps", *users, stream=stream)).code == 0
    assert dpsketch(*command("2026-11-16", "b.dps", *users, stream=stream)).code == 0
    assert StreamFolder("state").load().dropped_records == 3


@pytest.mark.usefixtures("visits")
@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--day", "2026-11-14"], "before the first day"),
        (["--day", "2027-11-14"], "31 days"),
        (["--day", "tomorrow"], "2026-11-15"),
        (["--epsilon", "2"], "another epsilon"),
        (["--width", "32"], "another width"),
        (["--continual", "days=31"], "another days"),
        (["--user", "who", "--max-keys", "1"], "another unit"),
        (["--continual", "days=30,user-days=3"], "another user-days"),
        (["--continual", "days=30,days-apart=2"], "another days-apart"),
        (["--key-type", "int"], "another key-type"),
        (["--seed", "5"], "another seed"),
        (["--dataset", "shop"], "another dataset"),
        (["--ledger", "other.db"], "another ledger"),
        (["--engine", "spark"], "--engine"),
        (["--key", "url,who"], "one column"),
        (["--continual", "weeks=3"], "--continual takes"),
        (["--continual", "days=many"], "whole number"),
        (["--continual", "objective=totals"], "needs days"),
        (["--part-by", "who"], "goes without"),
        (["--dry-run"], "goes without"),
    ],
)
def test_refused(dpsketch, more: list[str], words: str) -> None:
    assert dpsketch(*command("2026-11-15", "a.dps")).code == 0
    before = Path("state/stream.sketch").read_bytes()
    given = command("2026-11-16", "b.dps")
    for name, value in zip(more[::2], [*more[1::2], None], strict=False):
        if name in given and value is not None:
            given[given.index(name) + 1] = value
        else:
            given += [name] if value is None else [name, value]
    said = dpsketch(*given)
    assert said.code != 0
    assert words in " ".join(said.err.split())
    assert Path("state/stream.sketch").read_bytes() == before
    assert not Path("b.dps").exists()


@pytest.mark.usefixtures("visits")
def test_a_stream_that_was_charged_goes_on_with_its_ledger(dpsketch) -> None:
    """Without it an old backup would publish days again."""
    assert dpsketch(*command("2026-11-15", "a.dps")).code == 0
    before = Path("state/stream.sketch").read_bytes()
    said = dpsketch(*command("2026-11-16", "b.dps", budget=[*BUDGET[:4], "--no-ledger"]))
    assert said.code != 0
    assert "--no-ledger" in said.err
    assert Path("state/stream.sketch").read_bytes() == before
    free = ["--continual", "days=30", "--state", "free", "--width", "64"]
    for day in ("2026-11-15", "2026-11-16"):
        assert dpsketch(*command(day, f"{day}.dps", stream=free, budget=[*BUDGET[:4], "--no-ledger"])).code == 0
    said = dpsketch(*command("2026-11-17", "c.dps", stream=free))
    assert "another dataset" in " ".join(said.err.split())


@pytest.mark.usefixtures("visits")
def test_days_that_were_left_out_are_published_with_the_day_that_was_asked_for(dpsketch) -> None:
    """A file that cannot be read uses up no day: a date may have been mistaken with it."""
    assert dpsketch(*command("2026-11-15", "a.dps")).code == 0
    before = Path("state/stream.sketch").read_bytes()
    Path("visits.csv").rename("elsewhere.csv")
    assert dpsketch(*command("2026-11-25", "b.dps")).code != 0
    assert Path("state/stream.sketch").read_bytes() == before
    Path("elsewhere.csv").rename("visits.csv")
    for day, published in (("2026-11-18", 4), ("2026-11-20", 6)):
        assert dpsketch(*command(day, f"{day}.dps")).code == 0
        assert StreamFolder("state", ledger=dps.Ledger("budget.db")).load().days_published == published


@pytest.mark.usefixtures("visits")
def test_what_was_skipped_is_told_by_day(dpsketch) -> None:
    Path("visits.csv").write_text("url,who\n/a,ann\n,bob\n/b,ann\n", encoding="utf-8")
    told = [dpsketch(*command(f"2026-11-{day}", f"{day}.dps")).err for day in (15, 16, 17)]
    assert len({line for said in told for line in said.splitlines() if line.startswith("Read")}) == 1


@pytest.mark.usefixtures("visits")
def test_the_three_options_go_together(dpsketch) -> None:
    said = dpsketch(*command("2026-11-15", "a.dps", stream=["--state", "state"]))
    assert "go together" in " ".join(said.err.split())


@pytest.mark.usefixtures("visits")
@pytest.mark.parametrize("kind", ["counts", "histogram"])
@pytest.mark.parametrize("content", ["url,who\n/a,ann\n", "url,who\n"], ids=["a record", "no record"])
def test_a_format_without_types_has_text_as_keys(dpsketch, kind: str, content: str) -> None:
    Path("visits.csv").write_text(content, encoding="utf-8")
    asked = ["run", kind, "visits.csv", "--key", "url", *BUDGET, "--continual", "days=30", "--state", "state"]
    for day in (15, 16):
        made = dpsketch(*asked, "--day", f"2026-11-{day}", "-o", f"{day}.dps")
        assert made.code == 0, made.err
    assert StreamFolder("state").load().spec.key_type == "text"


@pytest.mark.usefixtures("visits")
@pytest.mark.parametrize("kind", ["counts", "histogram"])
def test_a_format_with_types_is_asked_for_the_type_of_keys(dpsketch, kind: str) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"url": ["/a"]}), "visits.parquet")
    stream = ["--continual", "days=30", "--state", "state", "--day", "2026-11-15", "-o", "a.dps"]
    refused = dpsketch("run", kind, "visits.parquet", "--key", "url", *BUDGET, *stream)
    assert refused.code == 2
    assert "key-type" in refused.err.replace("_", "-")


KINDS = {
    "histogram": ["--key", "url", "--keys-from", "urls.txt"],
    "ranges": ["--key", "ms", "--bits", "10"],
    "heavy": ["--key", "url", "--key-bytes", "4", "--rows", "3", "--width", "64"],
    "density": ["--columns", "ms", "--bandwidth", "10", "--bounds", "0:1000", "--rows", "20"],
}


@pytest.mark.parametrize("users", [[], ["--user", "who", "--max-keys", "2"]], ids=["records", "users"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_linear_kind_by_day(dpsketch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, users) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("budget.db", "other.db"):
        begun(name)
    Path("visits.csv").write_text("url,who,ms\n/a,ann,100\n/a,bob,300\n/b,cid,200\n/x,dan,250\n", encoding="utf-8")
    Path("urls.txt").write_text("/a\n/b\n", encoding="utf-8")
    limits = "days=30,user-days=1" if users else "days=30"
    given = ["run", kind, "visits.csv", *KINDS[kind], *users, *BUDGET, "--continual", limits, "--state", "state"]
    first = dpsketch(*given, "--day", "2026-11-15", "-o", "a.dps")
    assert first.code == 0, first.err
    assert "Charged to dataset 'web'" in first.err
    later = dpsketch(*given, "--day", "2026-11-17", "-o", "b.dps")
    assert later.code == 0, later.err
    assert "Charged to" not in later.err
    assert "Nothing was charged" in later.err
    sketch = StreamFolder("state", ledger=dps.Ledger("budget.db")).load()
    assert sketch.days_published == 3
    assert sketch.dropped_records == (4 if users else 0)
    asked = {"histogram": "/a", "ranges": "0:500", "heavy": "/a", "density": "100"}[kind]
    assert dpsketch("query", "b.dps", asked).code == 0
    other = {"histogram": "urls.txt", "ranges": "10", "heavy": "4", "density": "10"}[kind]
    Path("fewer.txt").write_text("/a\n", encoding="utf-8")
    changed = ["fewer.txt" if each == other == "urls.txt" else "9" if each == other else each for each in given]
    before = Path("state/stream.sketch").read_bytes()
    refused = dpsketch(*changed, "--day", "2026-11-18", "-o", "c.dps")
    assert refused.code != 0
    assert "begun with another" in " ".join(refused.err.split())
    assert Path("state/stream.sketch").read_bytes() == before
    assert len(dps.Ledger("budget.db").history("web")) == 1


@pytest.mark.usefixtures("visits")
def test_a_stream_that_was_interrupted_before_its_first_state_is_charged_once(dpsketch, monkeypatch) -> None:
    from dpsketch.sketches.partials import Partial

    def full(self: Partial, path: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Partial, "save_sensitive", full)
        assert dpsketch(*command("2026-11-15", "a.dps")).code != 0
    assert len(dps.Ledger("budget.db").history("web")) == 1
    said = dpsketch(*command("2026-11-15", "a.dps"))
    assert said.code == 0
    assert "again" in said.err
    assert len(dps.Ledger("budget.db").history("web")) == 1
    # A stream that is begun in the same folder later has its own price, whatever is left there.
    Path("state/stream.sketch").unlink()
    assert dpsketch(*command("2026-11-15", "b.dps")).code == 0
    assert len(dps.Ledger("budget.db").history("web")) == 2


@pytest.mark.usefixtures("visits")
def test_a_charge_that_was_never_closed_pays_for_one_stream_and_is_charged_once(dpsketch, monkeypatch) -> None:
    """Interrupted after the first state: days are published, and a stream that takes its place has its own price."""
    from dpsketch.ledger import Payment

    def killed(self: Payment) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(Payment, "close", killed)
        assert dpsketch(*command("2026-11-15", "a.dps")).code != 0
    assert dpsketch(*command("2026-11-15", "a.dps")).code == 0
    assert len(dps.Ledger("budget.db").history("web")) == 1
    Path("state/stream.sketch").unlink()
    assert dpsketch(*command("2026-11-15", "b.dps")).code == 0
    assert len(dps.Ledger("budget.db").history("web")) == 2
