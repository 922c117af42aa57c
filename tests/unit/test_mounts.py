"""What a mounted folder may have lying in it: links to nothing, drafts, one content twice; and that it may go."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import dpsketch as dps
from dpsketch.server.refusals import Refused
from dpsketch.server.releases import Releases


class _Nothing:
    def releases(self) -> list[Any]:
        return []


def names(releases: Releases) -> list[str]:
    releases.look()
    return sorted(each["name"] for each in releases.views())


def test_what_goes_is_served_no_longer_whatever_else_lies_there(tmp_path: Path) -> None:
    sketch = dps.Histogram(unit=dps.per_record(), key_type="text")
    stream = dps.ContinualSketch(sketch, keys=["a"], days=5, epsilon=1.0, delta=1e-6)
    folder = tmp_path / "published"
    folder.mkdir()
    stream.day(["a"] * 5)
    stream.series().save(folder / ".draft.dps")
    stream.day(["a"] * 5)
    (folder / "dead.dps").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.dps")
    for name in ("one", "two"):
        stream.series().save(folder / f"{name}.dps")
    releases: Any = Releases(_Nothing())  # type: ignore[arg-type]
    releases.load((folder,))
    (served,) = names(releases)
    (folder / f"{served}.dps").unlink()
    (left,) = {"one", "two"} - {served}
    assert names(releases) == [left]
    (only,) = releases._all.values()
    assert releases.content(only) == (folder / f"{left}.dps").read_bytes()
    # Replaced since it was last looked at: neither another release nor anything else goes out under this id.
    stream.day(["a"] * 5)
    for other in (stream.series().save, stream.save_sensitive, lambda path: path.write_bytes(b"x")):
        other(folder / f"{left}.dps")
        with pytest.raises(Refused):
            releases.content(only)
    shutil.rmtree(folder)
    assert names(releases) == []
