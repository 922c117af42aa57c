"""Days of a stream from the command line: begun, gone on with, asked again, and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps
from dpsketch.ledger import Payment
from dpsketch.sketches.continual.folder import StreamFolder
from dpsketch.sketches.partials import Partial
from ledgers import begun

BUDGET = ["--epsilon", "1", "--delta", "1e-6", "--ledger", "budget.db", "--dataset", "web"]
STREAM = ["--continual", "days=30", "--state", "state", "--width", "64", "--rows", "3"]
STATE = Path("state/stream.sketch")


@pytest.fixture(autouse=True)
def visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("budget.db", "other.db"):
        begun(name)
    Path("visits.csv").write_text("url,who,ms\n/a,ann,100\n/a,bob,300\n/b,ann,200\n,dan,250\n", encoding="utf-8")


def command(day: int, output: str, *more: str, stream: list[str] = STREAM, budget: list[str] = BUDGET) -> list[str]:
    keys = ["run", "counts", "visits.csv", "--key", "url", "--key-type", "text"]
    return [*keys, *budget, *stream, "--day", f"2026-11-{day}", "-o", output, *more]


def charges() -> list[Any]:
    return dps.Ledger("budget.db").history("web")


def test_days_go_on_and_gaps_are_published(dpsketch: Any) -> None:
    """What a stream spends is told when it begins. What was skipped of a day is told alike whatever came before."""
    dps.Ledger("budget.db").create("web", epsilon=2, delta=1e-6, unit=dps.per_record())
    told = dpsketch(*command(15, "a.dps")).err
    assert "Charged to dataset 'web': ε=1.00 of 2.00 at δ=1e-6 spent in 1 release." in told
    said = dpsketch(*command(15, "again.dps")).err
    assert "was published before" in said
    assert "Nothing was charged: dataset 'web' paid for all days" in said
    first, again = dps.load("a.dps"), dps.load("again.dps")
    assert (first.table == again.table).all()
    later = dpsketch(*command(18, "b.dps"))
    assert (later.code, "Nothing was charged" in later.err, "Charged to" in later.err) == (0, True, False)
    assert len({line for each in (told, later.err) for line in each.splitlines() if line.startswith("Read")}) == 1
    # A day that is asked again after later ones is still what it was.
    assert dpsketch(*command(15, "late.dps")).code == 0
    assert (dps.load("late.dps").table == first.table).all()
    sketch = StreamFolder("state").load()
    assert sketch.days_published == 4
    assert sketch.curve("/a").key == [f"2026-11-{day}" for day in (15, 16, 17, 18)]
    change = dps.load("b.dps") - first
    assert change.noise_scale == pytest.approx(sketch.between(2, 4).noise_scale)
    [entry] = charges()
    assert "30 days" in entry.note


def test_all_days_in_one_file_are_asked_and_drawn_over_time(dpsketch: Any) -> None:
    Path("published").mkdir()
    Path("keys.txt").write_text("/a\n/b\n", encoding="utf-8")
    series = ["--series", "published/web.dps"]
    for day in (15, 17):
        assert dpsketch(*command(day, f"{day}.dps", *series)).code == 0
    file, stream = "published/web.dps", StreamFolder("state").load()
    curve = dpsketch("query", file, "/a", "--curve", "1", "--json").json["estimates"]
    assert [each["key"] for each in curve] == ["2026-11-15", "2026-11-16", "2026-11-17"]
    assert [each["value"] for each in curve] == pytest.approx(stream.curve("/a", window=1).value.tolist())
    (found,) = dpsketch("query", file, "/a", "--days", "2:3", "--json").json["estimates"]
    assert found["value"] == pytest.approx(stream.between(2, 3).estimate(["/a"]).value[0])
    assert "/a" in dpsketch("top", file, "--candidates", "keys.txt", "--days", "1:3").out
    assert dpsketch("plot", file, "--key", "/a", "--curve", "total", "-o", "time.svg").code == 0
    refused = dpsketch(*command(18, "c.dps", "--series", "state/web.dps"))
    assert (refused.code, "another folder" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--day", "2026-11-14"], "before the first day"),
        (["--width", "32"], "another width"),
        (["--dataset", "shop"], "another dataset"),
        (["--ledger", "other.db"], "another ledger"),
        (["--continual", "days=30,design=pan-private"], "another design"),
    ],
)
def test_refused(dpsketch: Any, more: list[str], words: str) -> None:
    assert dpsketch(*command(15, "a.dps")).code == 0
    before = STATE.read_bytes()
    given = command(16, "b.dps")
    given[given.index(more[0]) + 1] = more[1]
    said = dpsketch(*given)
    assert said.code != 0
    assert words in " ".join(said.err.split())
    assert STATE.read_bytes() == before
    assert not Path("b.dps").exists()


def test_a_stream_that_was_charged_goes_on_with_its_ledger(dpsketch: Any) -> None:
    """Without it an old backup would publish days again."""
    assert dpsketch(*command(15, "a.dps")).code == 0
    before = STATE.read_bytes()
    said = dpsketch(*command(16, "b.dps", budget=[*BUDGET[:4], "--no-ledger"]))
    assert said.code != 0
    assert "--no-ledger" in said.err
    assert STATE.read_bytes() == before
    free = ["--continual", "days=30", "--state", "free", "--width", "64"]
    for day in (15, 16):
        assert dpsketch(*command(day, f"{day}.dps", stream=free, budget=[*BUDGET[:4], "--no-ledger"])).code == 0
    said = dpsketch(*command(17, "c.dps", stream=free))
    assert "another dataset" in " ".join(said.err.split())


def test_a_file_that_cannot_be_read_uses_up_no_day(dpsketch: Any) -> None:
    """A date may have been mistaken with it. Days that were left out are published with the one that is asked for."""
    assert dpsketch(*command(15, "a.dps")).code == 0
    before = STATE.read_bytes()
    Path("visits.csv").rename("elsewhere.csv")
    assert dpsketch(*command(25, "b.dps")).code != 0
    assert STATE.read_bytes() == before
    Path("elsewhere.csv").rename("visits.csv")
    assert dpsketch(*command(18, "18.dps")).code == 0
    assert StreamFolder("state", ledger=dps.Ledger("budget.db")).load().days_published == 4


KINDS = {
    "histogram": (["--key", "url", "--keys-from", "urls.txt"], "/a"),
    "ranges": (["--key", "ms", "--bits", "10"], "0:500"),
    "heavy": (["--key", "url", "--key-bytes", "4", *STREAM[4:]], "/a"),
    "density": (["--columns", "ms", "--bandwidth", "10", "--bounds", "0:1000", "--rows", "20"], "100"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_linear_kind_by_day(dpsketch: Any, kind: str) -> None:
    """Users are on one day at most: those of the first day are not counted on the third."""
    Path("visits.csv").write_text("url,who,ms\n/a,ann,100\n/a,bob,300\n/b,cid,200\n/x,dan,250\n", encoding="utf-8")
    Path("urls.txt").write_text("/a\n/b\n", encoding="utf-8")
    options, question = KINDS[kind]
    users = ["--user", "who", "--max-keys", "2", "--continual", "days=30,user-days=1", "--state", "state"]
    given = ["run", kind, "visits.csv", *options, *BUDGET, *users]
    first = dpsketch(*given, "--day", "2026-11-15", "-o", "a.dps")
    assert first.code == 0, first.err
    later = dpsketch(*given, "--day", "2026-11-17", "-o", "b.dps")
    assert later.code == 0, later.err
    assert "Nothing was charged" in later.err
    sketch = StreamFolder("state", ledger=dps.Ledger("budget.db")).load()
    assert sketch.days_published == 3
    assert sketch.dropped_records == 4
    assert dpsketch("query", "b.dps", question).code == 0
    assert len(charges()) == 1


@pytest.mark.parametrize(("home", "step"), [(Partial, "save_sensitive"), (Payment, "close")])
def test_a_charge_that_was_never_closed_pays_for_one_stream_and_is_charged_once(
    dpsketch: Any, monkeypatch: pytest.MonkeyPatch, home: Any, step: str
) -> None:
    """Interrupted before and after its first state. A stream that takes its place later has its own price."""

    def broken(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(home, step, broken)
        assert dpsketch(*command(15, "a.dps")).code != 0
    assert len(charges()) == 1
    assert dpsketch(*command(15, "a.dps")).code == 0
    assert len(charges()) == 1
    STATE.unlink()
    assert dpsketch(*command(15, "b.dps")).code == 0
    assert len(charges()) == 2
