"""Every kind says what its answers count, next to the numbers: clipped users, and user-days in a sum of days."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps
from dpsketch.answers import answer, describe, top
from dpsketch.cli.query import Forms
from dpsketch.errors import FileRefused, InvalidInput
from dpsketch.results import NOISE_ONLY, Estimates
from sensitive import BUDGET, DAILY, LISTS, ROWS, Row

# The columns of a table count different things, and each has words of its own.
USERS = [row for row in ROWS if row.name.endswith("user") and not row.frames]
WEIGHED = [row for row in ROWS if row.name.endswith("record") and not row.frames]
QUESTIONS: dict[str, list[Any]] = {
    "histogram": ["key 3"], "counts": ["key 3"], "heavy": [3], "sparse": [3],
    "ranges": ["1:9"], "quantiles": ["50%"], "density": ["1,2"],
}  # fmt: skip


def loaded(release: Any, folder: Path) -> Any:
    """Return the release as a reader of its file has it."""
    release.save(folder / "it.dps")
    return dps.load(folder / "it.dps")


def answers_of(release: Any) -> Iterator[Estimates]:
    """Ask a release by whatever words its kind takes."""
    if release.kind != "histogram-votes":  # it refuses keys that it does not name
        yield answer(release, QUESTIONS.get(release.kind, []), 0.95, None)
    if release.kind in ("histogram", "histogram-votes"):
        yield top(release, 5, None, 0.95)


def words_in(figure: Any) -> str:
    [axes, *_] = figure.axes
    return f"{axes.get_title(loc='left')} {axes.get_xlabel()} {axes.get_ylabel()}"


@pytest.mark.parametrize("row", USERS, ids=lambda row: row.name)
def test_answers_about_users_say_clipped_next_to_the_number(row: Row, tmp_path: Path, capsys: Any) -> None:
    release = loaded(row.publish(row.filled(0, 1, 2)), tmp_path)
    assert "users, clipped: at most" in release.counts
    assert describe(release, 1)["counts"] == release.counts
    shown = list(answers_of(release))
    assert shown
    for found in shown:
        assert found.counts == release.counts
        assert found.heading == "clipped estimate"
        for text in (repr(found), found._repr_html_(), found.to_markdown()):
            assert "clipped" in text
        assert "clipped" in found.to_arrow().schema.metadata[b"counts"].decode()
        Forms().show(found, release.guarantee, ())
        assert "clipped" in capsys.readouterr().out
        assert "clipped" in words_in(found.plot())
    try:
        picture = release.plot()
    except InvalidInput:  # a density of some features has none
        return
    assert "clipped" in words_in(picture)


@pytest.mark.parametrize("row", WEIGHED, ids=lambda row: row.name)
def test_answers_about_records_say_clipped_where_weights_are(row: Row) -> None:
    release = row.publish(row.filled(0))
    assert ("clipped" in release.counts) == (release.spec.unit.max_weight != 1)


@pytest.mark.parametrize("kind", DAILY)
def test_sums_of_days_count_user_days(kind: str, tmp_path: Path) -> None:
    start, keys = DAILY[kind]
    more = {"keys": [1, 2]} if kind == "histogram" else LISTS.get(kind, {})
    stream = dps.ContinualSketch(start(dps.per_user(max_keys=2)), days=4, user_days=3, **BUDGET, **more)
    for _ in range(2):
        stream.update(keys, **({} if kind == "table" else {"users": ["ann", "bob"]}))
        stream.publish_day()
    series = loaded(stream.series(), tmp_path)
    window = loaded(series.between(1, 2), tmp_path)
    bound = "; a user counts in" if kind == "table" else ", clipped:"
    for release in (series, window):
        assert release.counts.startswith(f"user-days (a user counts again on every day){bound} at most 2 ")
        assert describe(release, 1)["counts"] == release.counts
    question = series.question({"ranges": "1:3", "density": "1,2"}.get(kind, 1))
    change = series.change(question, (2, 2), (1, 1))
    assert change.note == NOISE_ONLY
    for found in (series.curve(question), stream.curve(question), change, window.ask(question, 0.95)):
        assert found.counts == series.counts
    assert "user-days" in words_in(series.plot(question))
    document = series.to_document()
    del document.header["guarantee"]["counted_again"]
    with pytest.raises(FileRefused):
        type(series).from_document(document)


def test_two_releases_together_count_users_of_each() -> None:
    sketch = dps.CountSketch(rows=3, width=16, unit=dps.per_user(max_keys=2), key_type="int")
    both = sketch.release(**BUDGET) + sketch.release(**BUDGET)
    assert both.estimate([1]).counts.startswith("users of each release (a user in both counts in each), clipped")
