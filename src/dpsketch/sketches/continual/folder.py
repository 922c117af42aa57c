"""A stream's state in a folder: what was drawn is on the disk before anyone sees it.

The order is: end the day, draw, write the new state (a file beside it, to the disk, renamed, the folder to the disk),
record the day in the ledger, and only then return what may be shown. A crash before the write leaves the day as it was:
what was drawn was seen by nobody. A crash after it leaves the day published: asked again, it is answered from the state
and never drawn again. A state from an old backup is refused where a ledger knows of a later day.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from dpsketch import files
from dpsketch.errors import FileRefused, ReleaseRefused
from dpsketch.noise import random_id
from dpsketch.processes import OneProcess
from dpsketch.sketches.continual.sketch import ContinualSketch

if TYPE_CHECKING:
    from dpsketch.ledger import Ledger


_STATE = "stream.sketch"
_LOCK = "stream.lock"
_BEGUN = "stream.begun"


def holds_state(folder: Path) -> bool:
    """Say whether a stream was begun in a folder, or was about to be: what lies there is sensitive."""
    return any((folder / name).exists() for name in (_STATE, _LOCK, _BEGUN))


class StreamFolder(OneProcess):
    """The folder of one stream, for the process that opens it; a forked child opens it anew.

    Parameters
    ----------
    folder : path
        Where its state lies; only its owner may read it.
    ledger : Ledger, optional
        The one that the stream was charged to. Without it an old backup cannot be told from the newest state.

    Privacy
    -------
    The state is exact, hence sensitive. If it is restored from a backup in spite of all, days are shown again, with
    fresh noise over the same data. Then j showings cost at most μ√j together. Where keys are found day by day, each
    showing can also fail with probability δ_T (:mod:`dpsketch.sketches.continual.stream`), and these add up: the j
    showings are (ε, δ_G(ε; μ√j) + j·δ_T)-private for every ε.

    Examples
    --------
    >>> import tempfile
    >>> import dpsketch as dps
    >>> shape = {"rows": 5, "width": 64, "unit": dps.per_record(), "key_type": "text"}
    >>> with tempfile.TemporaryDirectory() as place:
    ...     folder = StreamFolder(place)
    ...     folder.begin(dps.ContinualCountSketch(days=365, **shape, epsilon=1.0, delta=1e-6))
    ...     sketch = folder.load()
    ...     sketch.update(["tea", "tea", "milk"])
    ...     monday = folder.publish(sketch)
    ...     folder.load().days_published
    1
    """

    def __init__(self, folder: str | os.PathLike[str], *, ledger: Ledger | None = None) -> None:
        self._folder = Path(folder)
        self._ledger = ledger
        self._holds = False
        self._turn = RLock()

    @property
    def exists(self) -> bool:
        """Whether a stream was begun here."""
        return self._path.exists()

    @property
    def _path(self) -> Path:
        return self._folder / _STATE

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder alone: of two processes or threads that would end one day, the second is refused."""
        self._refuse_copy()  # a child that is forked in here would hold the folder as well
        if not self._turn.acquire(blocking=False):
            raise self._in_use()
        try:
            if self._holds:  # this very thread
                yield
                return
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with (self._folder / _LOCK).open("w") as lock:
                if os.name == "posix":
                    import fcntl

                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    except OSError:
                        raise self._in_use() from None
                self._holds = True
                try:
                    # Two states of one stream show what came between them, exactly, also where each may be seized.
                    files.remove_left(self._folder)
                    yield
                finally:
                    self._holds = False
        finally:
            self._turn.release()

    def _in_use(self) -> FileRefused:
        return FileRefused(f"{self._folder} is in use by another process or thread. Wait for it to end.")

    def token(self) -> str:
        """Return a random name for the stream that is to begin here, the same until it has begun.

        A payment is bound to it: whoever was interrupted between the charge and the first state comes again with the
        same name, and pays once.
        """
        path = self._folder / _BEGUN
        with self.held():
            known = path.read_text(encoding="ascii") if path.exists() else ""
            if len(known) != len(name := random_id()):  # none, or one that was not written whole
                path.write_text(name, encoding="ascii")
                files.sync_folder(self._folder)
                return name
            return known

    def _forget_token(self) -> None:
        """Forget the name: a stream that begins here later, should this one be deleted, has its own price."""
        (self._folder / _BEGUN).unlink(missing_ok=True)

    def begin(self, sketch: ContinualSketch) -> None:
        """Write the state of a stream that was just charged, before its first day."""
        with self.held():
            if self.exists:
                raise FileRefused(f"{self._folder} holds a stream already: go on with it, or name another folder.")
            sketch.save_sensitive(self._path)
            self._forget_token()

    def load(self) -> ContinualSketch:
        """Return the stream as it was last written; refuse one that is not what the ledger knows was shown."""
        sketch = self._read()
        with contextlib.suppress(FileRefused), self.held():
            pass  # what was left by one that was killed is gone before anything goes on
        self._forget_token()
        self._refuse_old(sketch)
        # Written, and perhaps not recorded: whoever was interrupted has shown nothing since.
        self._record(sketch)
        sketch._use_ledger(self._ledger)
        return sketch

    def publish(self, sketch: ContinualSketch) -> Any:
        """End the day of a stream that was loaded from here, write it, record it, and return the total so far.

        Raises
        ------
        ReleaseRefused
            If the sketch does not go on from what the folder holds: it was loaded before another ended the day, or is
            not of this stream. Nothing is drawn or written.
        """
        with self.held():
            stored = self._read()
            if not _goes_on(sketch, stored):
                raise ReleaseRefused(
                    f"this is not the state in {self._folder}: that has gone on since it was loaded, or is of another "
                    "stream. A day is drawn once: load the state, and give it the records of its own day."
                )
            self._refuse_old(sketch)
            release = sketch.publish_day(state=self._path)
            self._record(sketch)
        return release

    def _read(self) -> ContinualSketch:
        document = files.read(self._path, allow_sensitive=True)
        if document.kind != ContinualSketch.kind:
            raise FileRefused(f"{self._path} holds no stream: it was not written here.")
        return ContinualSketch.from_document(document)

    def _refuse_old(self, sketch: ContinualSketch) -> None:
        """Refuse a state that would show, or has shown, a day with other noise than the ledger knows of."""
        if self._ledger is None or sketch.charge is None or (known := self._ledger.last_day(sketch.charge)) is None:
            return
        day, publication = known
        if day > sketch.days_published:
            raise ReleaseRefused(
                f"the ledger knows that day {day} of this stream was published, and the state in {self._folder} ends "
                f"with day {sketch.days_published}: it is an old copy, and would publish days again with other noise. "
                "Restore the newest state, or begin another stream."
            )
        if publication != sketch.publication_of(day):
            raise ReleaseRefused(
                f"the state in {self._folder} published day {day} with other noise than the ledger knows was shown: it "
                "is another copy. Restore the newest state, or begin another stream."
            )

    def _record(self, sketch: ContinualSketch) -> None:
        if self._ledger is not None and sketch.charge is not None and sketch.days_published:
            self._ledger.record_day(sketch.charge, sketch.days_published, sketch.publication)


def _goes_on(sketch: ContinualSketch, stored: ContinualSketch) -> bool:
    """Say whether a sketch is a stored one, with its days, and perhaps with further ones that nobody has stored."""
    day = stored.days_published
    if sketch.partial_ids != stored.partial_ids or sketch.days_published < day:
        return False
    return day == 0 or sketch.publication_of(day) == stored.publication
