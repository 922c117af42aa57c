"""Sketches over a structured stream, each micro-batch counted once: a pan-private one, and one published by day."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dpsketch import files
from dpsketch.errors import FileRefused, InvalidInput, ReleaseRefused
from dpsketch.kinds import load_sensitive
from dpsketch.sketches.continual.folder import StreamFolder
from dpsketch.sketches.continual.sketch import ContinualSketch
from dpsketch.sketches.countsketch import PrivateCountSketch
from dpsketch.spark.construction import build, quoted, run

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import DataFrame

    from dpsketch.ledger import Ledger

__all__ = ["DailyStream", "PanPrivateStream"]


class PanPrivateStream:
    """What ``foreachBatch`` calls: adds a micro-batch to a pan-private sketch whose state is a file.

    Spark repeats the last micro-batch after a failure. The name of the state's file says how many micro-batches are in
    it, the file is replaced as a whole, and a micro-batch that is in it is not counted again.

    Parameters
    ----------
    folder : path
        Where the state lies: one file, beside Spark's own checkpoint and as lasting. Give each stream its own.
    start : callable
        Makes the sketch where the folder has none, and charges its budget; not called again after a restart.
    key, weight : str
        Columns, as for :func:`dpsketch.spark.build`.
    ledger : Ledger, optional
        The one that the sketch was charged to. Needed where it was charged as a part of a dataset.

    Privacy
    -------
    The content of the state is that of a :func:`dpsketch.PanPrivateCountSketch`, private against one seizure. What
    lies around it is not: Spark's checkpoint holds offsets, which count records, and the state's name counts
    micro-batches, of which there may be one because one record came. Older states are removed, but removing is not
    erasing: from two states, recovered from a disk or found while the newer one is written, the records in between are
    read exactly. Keep both folders on storage whose key is not seized with it. The exact counts of one micro-batch
    exist while it is being counted, as its records do; a shorter trigger makes that shorter.

    Examples
    --------
    ``stream.writeStream.foreachBatch(counter).option("checkpointLocation", …).start()``, where ``counter`` is one of
    these; the how-to about Spark has a whole example.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        start: Callable[[], ContinualSketch],
        *,
        key: str,
        weight: str | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._ledger = ledger
        self._folder = Path(folder)
        self._key = key
        self._weight = weight
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._states():
            sketch = start()
            if not sketch.design.keeps_noise:
                raise InvalidInput("start makes a sketch whose state may be seized, as dps.PanPrivateCountSketch does.")
            sketch.save_sensitive(self._file(0))

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Count a micro-batch, unless it is in the state already."""
        counted, sketch = self._newest()
        if batch_id < counted:
            return
        part = build(batch, sketch.empty_day(), key=self._key, weight=self._weight)
        # The state's name tells which micro-batches are in it.
        sketch.merge(part, ledger=self._ledger, fresh=True)
        sketch.save_sensitive(self._file(batch_id + 1))
        self._keep_only(batch_id + 1)

    def publish(self) -> PrivateCountSketch:
        """End the sketch and return what may be published. The state is removed first: it is never published twice."""
        _, sketch = self._newest()
        self._keep_only(None)
        private: PrivateCountSketch = sketch.publish()
        return private

    def _newest(self) -> tuple[int, ContinualSketch]:
        states = self._states()
        if not states:
            raise ReleaseRefused("this stream's sketch was published, which ended it. Start another.")
        # An older one is left where the process ended between writing the newest and removing it.
        self._keep_only(states[-1])
        sketch: ContinualSketch = load_sensitive(self._file(states[-1]))
        return states[-1], sketch

    def _states(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.sketch"))

    def _file(self, counted: int) -> Path:
        return self._folder / f"{counted:012}.sketch"

    def _keep_only(self, counted: int | None) -> None:
        for state in self._states():
            if state != counted:
                self._file(state).unlink()


class _Place(NamedTuple):
    """Where a stream is: the last micro-batch that was begun, its day, and up to which day those without are due."""

    batch: int
    day: int
    until: int


class DailyStream:
    """What ``foreachBatch`` calls: publishes each micro-batch as one day of a stream.

    Spark repeats the last micro-batch after a failure. A day that is published already is not counted or drawn again.

    Parameters
    ----------
    folder : path
        Where the stream's state lies (:class:`~dpsketch.sketches.continual.folder.StreamFolder`), beside Spark's own
        checkpoint and as lasting. Give each stream its own.
    start : callable
        Makes the sketch where the folder has none, and charges its budget; not called again after a restart.
    publish : callable
        Called with the release of the total so far and the number of the day, once the day is on the disk; after a
        failure perhaps again, with the same release.
    key, user, weight, points : str
        Columns, as for :func:`dpsketch.spark.build`.
    ledger : Ledger, optional
        The one that the stream was charged to, which knows its days.

    Privacy
    -------
    That of the stream. **Spark makes no micro-batch where no record came, which would tell that none did:** run it at
    a fixed time, with ``trigger(availableNow=True)``, and call :meth:`end_day` after it with the number of the day.
    Late records count on the day they arrive. Where the unit is a record, tasks count; histograms and users are counted
    by the driver, which knows the list and whose days were counted.

    Examples
    --------
    ``stream.writeStream.foreachBatch(daily).option("checkpointLocation", …).trigger(availableNow=True).start()``, where
    ``daily`` is one of these; the how-to about Spark has a whole example.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        start: Callable[[], ContinualSketch],
        publish: Callable[[Any, int], None],
        *,
        key: str | None = None,
        user: str | None = None,
        weight: str | None = None,
        points: Sequence[str] = (),
        ledger: Ledger | None = None,
    ) -> None:
        self._state = StreamFolder(folder, ledger=ledger)
        self._place = Path(folder) / "stream.days"
        self._publish = publish
        given = {"key": key, "user": user, "weight": weight, "points": list(points) or None}
        self._columns: dict[str, Any] = {role: name for role, name in given.items() if name is not None}
        with self._state.held():
            if not self._state.exists:
                self._state.begin(start())
            if not self._place.exists() and self._state.load().days_published == 0:
                self._note(_Place(-1, 0, 0))

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Publish a micro-batch as a day, unless it was."""
        with self._state.held():
            place, sketch = self._noted(), self._state.load()
            if batch_id < place.batch:
                return
            if batch_id == place.batch and place.day <= sketch.days_published:
                self._publish(sketch.between(1, place.day), place.day)
                return
            self._publish_until(place.until)
            sketch = self._state.load()
            day = sketch.days_published + 1
            # Noted first: whether the day was published, and the micro-batch counted, the state tells.
            self._note(_Place(batch_id, day, place.until))
            self._count(sketch, batch)
            self._publish(self._state.publish(sketch), day)

    def end_day(self, day: int) -> None:
        """Publish all days up to this one that no micro-batch came for, without records."""
        with self._state.held():
            place, published = self._noted(), self._state.load().days_published
            if day > published:
                if place.day > published:  # a micro-batch that was begun and not counted has its day later
                    place = _Place(place.batch - 1, published, place.until)
                # Noted first: interrupted in between, the next micro-batch publishes them.
                self._note(_Place(place.batch, place.day, day))
                self._publish_until(day)

    def _publish_until(self, day: int) -> None:
        for number in range(self._state.load().days_published + 1, day + 1):
            self._publish(self._state.publish(self._state.load()), number)

    def _noted(self) -> _Place:
        try:
            batch, day, until = map(int, self._place.read_text(encoding="ascii").split())
        except (OSError, ValueError):
            raise FileRefused(
                f"{self._place} is missing or not as it was written: nobody knows which micro-batches were counted."
            ) from None
        return _Place(batch, day, until)

    def _note(self, place: _Place) -> None:
        whole = self._place.with_suffix(".new")
        with whole.open("w", encoding="ascii") as file:
            file.write(" ".join(map(str, place)))
            file.flush()
            os.fsync(file.fileno())
        whole.replace(self._place)
        files.sync_folder(self._place.parent)

    def _count(self, sketch: ContinualSketch, batch: DataFrame) -> None:
        if sketch.spec.unit.level == "record" and sketch.counts_kind != "histogram":
            sketch.merge_today(build(batch, sketch.empty_day(), **self._columns))
            return
        names = [name for each in self._columns.values() for name in ([each] if isinstance(each, str) else each)]
        records = run(lambda: batch.select(*map(quoted, dict.fromkeys(names))).toArrow())
        sketch.update(records, **self._columns)
