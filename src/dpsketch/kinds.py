"""From a file to what it holds, by the table of kinds."""

from __future__ import annotations

from os import PathLike
from typing import Any

from dpsketch import files
from dpsketch.errors import FileRefused, SensitiveData
from dpsketch.release import Release
from dpsketch.sketches.kinds import KINDS, Kind

__all__ = ["KINDS", "Kind", "Release", "load", "load_sensitive"]


def load(source: str | PathLike[str] | bytes) -> Release:
    """Read a release from a ``.dps`` file or from its bytes. A sensitive file is refused."""
    if isinstance(source, bytes):
        document = files.decode(source, allow_sensitive=False)
    else:
        document = files.read(source, allow_sensitive=False)
    if document.header.get("derived"):
        import dpsketch.sketches.continual.windows  # noqa: F401  a window of a stream may be of any kind
    release: Release = files.rebuilt(document, _kind(document).private)
    return release


def load_sensitive(source: str | PathLike[str] | bytes) -> Any:
    """Read a sensitive sketch from a ``.sketch`` file or from bytes, inside the trust boundary."""
    if isinstance(source, bytes):
        document = files.decode(source, allow_sensitive=True)
    else:
        document = files.read(source, allow_sensitive=True)
    if not document.sensitive:
        raise SensitiveData("this file is a public release, not a sensitive sketch: read it with dps.load.")
    kind = _kind(document)
    if kind.sensitive is None:
        raise FileRefused("the file holds a kind that is never sensitive; it was not written by dpsketch.")
    return files.rebuilt(document, kind.sensitive)


def _kind(document: files.Document) -> Kind:
    if document.kind == "classes":
        raise FileRefused("the file holds a classifier: read it with dps.DensityClassifier.load.")
    if document.kind not in KINDS:
        raise FileRefused("the file holds a kind of sketch that this version does not know; a newer one may.")
    return KINDS[document.kind]
