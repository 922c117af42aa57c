"""A file that a command writes: its room is made sure of first, and it takes its name last.

Beside the target lies a hidden file that only its owner may read. It is made before anything is read or charged, as
large as the content will be, so that a full disk is found out while it costs nothing. The content is written into it
when it is paid for, and the file takes the target's name as the very last step. What a process that was killed in
between left there is whole or not, which its digest tells; if it is whole, ``dpsketch recover`` gives it its name.

Some content ends other files: a sketch that may be released once, parts that share one secret. They are named behind
the content until they are overwritten. So there is no moment at which both could be used: before the content is whole
they are there alone, and whoever finds it whole overwrites them first.

Of two commands that end the same file the first one has it for good: it overwrites the file with a mark of its own,
under a lock, and whoever finds another's mark throws its own content away. Several files are locked and looked at, in
one order for all commands, before the first of them is marked. One loss is left: of two commands that end *some* files
in common, one that is killed between two of its marks may find the other's later, and has destroyed a part by then.
Nothing is ever there twice.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from dpsketch.cli.exits import OutputExists, put_in_place
from dpsketch.errors import DpsketchError, FileRefused, ReleaseRefused

__all__ = ["Ending", "Spool", "reason_of"]

_MAGIC = b"dpsketch, ends: "
_TAIL = len(_MAGIC) + 8
_MARK = b"dpsketch, ended by: "


@dataclass(frozen=True, slots=True)
class Ending:
    """A file that a content ends: which one it was when it was read, so that another of its name is left alone.

    Attributes
    ----------
    path : str
        Where it is.
    device, inode, size : int
        Which file it is.
    mark : str
        What the command that ends it overwrites it with, so that it knows its own work again.
    """

    path: str
    device: int
    inode: int
    size: int
    mark: str

    @classmethod
    def of(cls, path: Path) -> Self:
        """Note a file that is about to be read, and will be ended."""
        state = path.stat()
        return cls(os.path.realpath(path), state.st_dev, state.st_ino, state.st_size, secrets.token_hex(16))

    @contextlib.contextmanager
    def held(self) -> Iterator[BinaryIO]:
        """Hold the file alone; one that is another than was read, or has another command's mark, counts as gone."""
        with Path(self.path).open("r+b") as file:
            _lock(file.fileno(), wait=True)
            found, there = os.fstat(file.fileno()), Path(self.path).stat()
            begin = file.read(len(_MARK) + len(self.mark))
            taken = begin.startswith(_MARK) and begin != _MARK + self.mark.encode()
            same = (found.st_dev, found.st_ino, found.st_size) == (self.device, self.inode, self.size)
            if taken or not same or not os.path.samestat(found, there):
                raise FileNotFoundError(errno.ENOENT, "replaced by another file", self.path)
            yield file


class Spool:
    """A file to be, beside its target; made by :meth:`reserve` or :meth:`reopen`.

    Attributes
    ----------
    output : Path
        The target, as its owner named it.
    complete : bool
        Whether the content is in it, and on the disk.
    """

    def __init__(self, output: Path, *, overwrite: bool) -> None:
        self.output = output
        self.complete = False
        self._overwrite = overwrite
        # A link stays a link: what it points to is replaced.
        self._target = Path(os.path.realpath(output))
        self._path = self._target.with_name(f".{self._target.name}.unfinished")
        self._file = -1
        self._length = 0
        self._sensitive = True
        self._ends: list[Ending] = []
        self._check_target()

    @classmethod
    def reserve(cls, output: Path, *, overwrite: bool) -> Self:
        """Hold the place of a file that is to be written; nobody else can until this one is closed.

        Raises
        ------
        FileRefused
            The target exists and may not be overwritten, or cannot be written, or something whole waits for its name.
        """
        spool = cls(output, overwrite=overwrite)
        with _refusing(output):
            spool._open(os.O_CREAT)
            if os.fstat(spool._file).st_size:
                if spool._read() and not overwrite:
                    spool._close()
                    raise FileRefused(
                        f"{output} is not in place: a command was interrupted when it had it whole, and perhaps paid "
                        f"for. `dpsketch recover {output}` puts it in place. --overwrite gives it up."
                    )
                spool.complete, spool._ends = False, []
                spool.discard()
                spool._open(os.O_CREAT)
        return spool

    def make_room(self, size: int) -> None:
        """Make sure of the room of about so many bytes, before anything is read or charged."""
        with _refusing(self.output):
            _allocate(self._file, size)

    @classmethod
    def reopen(cls, output: Path, *, overwrite: bool) -> Self:
        """Open what an interrupted command left whole beside its target."""
        spool = cls(output, overwrite=overwrite)
        nothing = f"nothing waits to become {output}."
        if not spool._path.exists():
            raise FileRefused(nothing)
        spool._open(0)
        if not spool._read():
            spool._close()
            raise FileRefused(f"{nothing} What lies beside it was interrupted before it was whole.")
        return spool

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.complete:
            self._close()
        else:
            self.discard()

    def fit(self, data: bytes, ends: Sequence[Ending] = ()) -> None:
        """Take exactly the room of a content, of which nothing is written yet, and note which files it ends."""
        self._ends = sorted(ends, key=lambda end: end.path)
        _allocate(self._file, len(data) + len(self._tail()))

    def write(self, data: bytes, *, sensitive: bool) -> None:
        """Write the content into the room that :meth:`fit` took, down to the disk."""
        self._length = len(data)
        self._sensitive = sensitive
        # What it ends is on the disk before the content can be whole there.
        _write_at(self._file, self._tail(), len(data))
        os.fsync(self._file)
        _write_at(self._file, data, 0)
        os.fsync(self._file)
        self.complete = True

    def finish(self) -> None:
        """Destroy what the content ends, then give the file its name.

        Raises
        ------
        ReleaseRefused
            A file that the content ends is gone: someone else has used it up. The content is thrown away.
        FileRefused
            The target came into being meanwhile. The content is kept.
        """
        try:
            with contextlib.ExitStack() as held:
                ended = [(held.enter_context(end.held()), end) for end in self._ends]
                for file, end in ended:
                    _overwrite(file, end)
                # From here on they are nobody's but this content's, by their marks.
                os.ftruncate(self._file, self._length)
                os.fsync(self._file)
                for end in self._ends:
                    Path(end.path).unlink()
        except FileNotFoundError:
            self.complete = False
            self.discard()
            raise ReleaseRefused(
                f"{self.output} was not put in place: the sketch that it ends is gone, used up by another command. "
                "What was drawn from it here is thrown away."
            ) from None
        self._ends = []
        self._place()

    def discard(self) -> None:
        """Remove it."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            self._close()

    def _check_target(self) -> None:
        folder = self._target.parent
        if self._target.is_dir():
            raise FileRefused(f"cannot write {self.output}: it is a folder. Name a file.")
        if not folder.is_dir():
            raise FileRefused(f"cannot write {self.output}: the folder {self.output.parent} does not exist.")
        if not os.access(folder, os.W_OK):
            raise FileRefused(f"cannot write {self.output}: the folder {self.output.parent} is not writable.")
        if self._target.exists():
            if not stat.S_ISREG(self._target.stat().st_mode):
                raise FileRefused(f"cannot write {self.output}: it exists and is not a regular file.")
            if not self._overwrite:
                raise OutputExists(
                    f"{self.output} exists, and what it holds may have been paid for. Name another file, or say "
                    "--overwrite to replace it."
                )

    def _open(self, flags: int) -> None:
        """Open the hidden file and hold it alone."""
        flags |= os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        while True:
            self._file = os.open(self._path, flags, 0o600)
            if not _lock(self._file):
                self._close()
                raise FileRefused(f"another command is writing {self.output}. Wait for it, or name another file.")
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._file), self._path.stat()):
                    break
            # The command that held it has just finished.
            self._close()
        if hasattr(os, "geteuid") and os.fstat(self._file).st_uid != os.geteuid():
            self._close()
            raise FileRefused(f"cannot write {self.output}: {self._path} belongs to someone else.")

    def _read(self) -> bool:
        """Read what lies there; say whether it is whole."""
        from dpsketch import files

        data = _read_all(self._file)
        ends: list[Ending] = []
        try:
            if data.endswith(_MAGIC):
                start = len(data) - _TAIL
                length = start - int.from_bytes(data[start : start + 8], "little")
                data, ends = data[:length], [Ending(**end) for end in json.loads(data[length:start])]
            document = files.decode(data, allow_sensitive=True)
        except (DpsketchError, TypeError, ValueError):
            return False
        self._length, self._sensitive, self._ends, self.complete = len(data), document.sensitive, ends, True
        return True

    def _tail(self) -> bytes:
        text = json.dumps([asdict(end) for end in self._ends]).encode()
        return text + len(text).to_bytes(8, "little") + _MAGIC

    def _place(self) -> None:
        from dpsketch.files import sync_folder

        if not self._sensitive:
            umask = os.umask(0o077)
            os.umask(umask)
            self._path.chmod(0o666 & ~umask)
        if self._overwrite:
            self._path.replace(self._target)
            self._path.unlink(missing_ok=True)  # two names of one file are both left
        else:
            try:
                _rename_new(self._path, self._target)
            except FileExistsError:
                raise OutputExists(
                    f"{self.output} came into being meanwhile, and was left as it is. "
                    f"`dpsketch recover {self.output} --overwrite` replaces it."
                ) from None
        put_in_place(self.output)
        sync_folder(self._target.parent)
        self._close()

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def reason_of(error: OSError) -> str:
    """Say why the system refused a write."""
    return "no space is left on the disk" if error.errno == errno.ENOSPC else (error.strerror or type(error).__name__)


@contextlib.contextmanager
def _refusing(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileRefused(f"cannot write {output}: {reason_of(error)}. Nothing was read, charged or written.") from None


def _lock(file: int, *, wait: bool = False) -> bool:
    """Hold a file alone until it is closed or the process ends; say whether nobody else does, or wait until then."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows: the user sees to it that no two commands have one output
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _allocate(file: int, size: int) -> None:
    """Take exactly so much room on the disk; zeros are written where the system cannot take it otherwise."""
    try:
        os.posix_fallocate(file, 0, size)
    except (AttributeError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        block = bytes(1 << 20)
        for start in range(0, size, len(block)):
            _write_at(file, block[: size - start], start)
        os.fsync(file)
    os.ftruncate(file, size)


def _write_at(file: int, data: bytes, start: int) -> None:
    view = memoryview(data)
    os.lseek(file, start, os.SEEK_SET)
    while view:
        view = view[os.write(file, view) :]


def _read_all(file: int) -> bytes:
    os.lseek(file, 0, os.SEEK_SET)
    with os.fdopen(os.dup(file), "rb") as stream:
        return stream.read()


def _overwrite(file: BinaryIO, end: Ending) -> None:
    """Overwrite a sensitive file with a mark, then with zeros, down to the disk."""
    file.seek(0)
    file.write(_MARK + end.mark.encode())
    file.flush()
    os.fsync(file.fileno())
    for start in range(file.tell(), end.size, 1 << 20):
        file.write(bytes(min(1 << 20, end.size - start)))
    file.flush()
    os.fsync(file.fileno())


def _rename_new(path: Path, target: Path) -> None:
    """Rename a file to a name that nothing has; a link says so where the file system has links."""
    try:
        os.link(path, target)
    except FileExistsError:
        raise
    except OSError:
        if target.exists():
            raise FileExistsError(errno.EEXIST, "exists", str(target)) from None
        path.rename(target)
    else:
        path.unlink()
