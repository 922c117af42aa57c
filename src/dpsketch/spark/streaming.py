"""A pan-private sketch over a structured stream, each micro-batch counted once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from dpsketch.errors import ReleaseRefused
from dpsketch.kinds import load_sensitive
from dpsketch.sketches.countsketch import CountSketch, PanPrivateCountSketch, PrivateCountSketch
from dpsketch.spark.construction import build

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import DataFrame

__all__ = ["PanPrivateStream"]


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

    Privacy
    -------
    The content of the state is that of a :class:`dpsketch.PanPrivateCountSketch`, private against one seizure. What
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
        start: Callable[[], PanPrivateCountSketch],
        *,
        key: str,
        weight: str | None = None,
    ) -> None:
        self._folder = Path(folder)
        self._key = key
        self._weight = weight
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self._states():
            start().save_sensitive(self._file(0))

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Count a micro-batch, unless it is in the state already."""
        counted, sketch = self._newest()
        if batch_id < counted:
            return
        part = build(batch, CountSketch.from_spec(sketch.spec), key=self._key, weight=self._weight)
        sketch.merge_fresh(part)  # the state's name tells which micro-batches are in it
        sketch.save_sensitive(self._file(batch_id + 1))
        self._keep_only(batch_id + 1)

    def publish(self) -> PrivateCountSketch:
        """End the sketch and return what may be published. The state is removed first: it is never published twice."""
        _, sketch = self._newest()
        self._keep_only(None)
        return sketch.publish()

    def _newest(self) -> tuple[int, PanPrivateCountSketch]:
        states = self._states()
        if not states:
            raise ReleaseRefused("this stream's sketch was published, which ended it. Start another.")
        # An older one is left where the process ended between writing the newest and removing it.
        self._keep_only(states[-1])
        sketch: PanPrivateCountSketch = load_sensitive(self._file(states[-1]))
        return states[-1], sketch

    def _states(self) -> list[int]:
        return sorted(int(path.stem) for path in self._folder.glob("*.sketch"))

    def _file(self, counted: int) -> Path:
        return self._folder / f"{counted:012}.sketch"

    def _keep_only(self, counted: int | None) -> None:
        for state in self._states():
            if state != counted:
                self._file(state).unlink()
