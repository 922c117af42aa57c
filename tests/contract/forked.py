"""Fork a process that holds one object of every kind, and say what the child was allowed: run by ``test_fork``.

A script of its own: a test runner may have threads, and forking a process that has them is unsafe.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

import dpsketch as dps
from dpsketch import local
from dpsketch.core.account import Account
from dpsketch.core.permit import Permit
from dpsketch.errors import DpsketchError, ReleaseRefused
from dpsketch.privacy import Budget
from dpsketch.sketches.continual.folder import StreamFolder
from sensitive import ROWS, Row

Outcomes = dict[str, str]


def outcome(action: Callable[[], object]) -> str:
    """Say how an action ended: refused as a copy, refused for another reason, or done."""
    try:
        action()
    except ReleaseRefused as refusal:
        return "refused" if "fork" in str(refusal) else str(refusal)
    except (DpsketchError, TypeError) as other:
        return f"{type(other).__name__}: {other}"
    return "done"


def in_child(work: Callable[[], Outcomes]) -> Outcomes:
    """Return what a forked child says that it could do."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        found: Outcomes = json.loads(said.read() or b'{"the child": "died"}')
    os.waitpid(child, 0)
    return found


def public_methods(thing: object) -> list[str]:
    return [
        name
        for name in dir(type(thing))
        if not name.startswith("_") and isinstance(getattr(type(thing), name), FunctionType)
    ]


def of_a_sketch(row: Row) -> dict[str, Any]:
    """Try all methods of a sketch, and of a partial that was started for it, in a child; then publish in both."""
    sketch = row.filled(0)
    partner = row.partner(sketch, 1) if row.merges else None

    def work() -> Outcomes:
        mine = row.filled(1)
        # The refusal comes before the arguments are looked at.
        tried = {name: outcome(getattr(sketch, name)) for name in public_methods(sketch)}
        tried |= {"add": outcome(lambda: row.add(sketch, 1)), "show": outcome(lambda: row.publish(sketch))}
        if partner is not None:
            tried["merge into it"] = outcome(lambda: sketch.merge(partner))
            tried["merge it"] = outcome(lambda: mine.merge(partner))
        tried["its own"] = outcome(lambda: row.publish(mine))
        return tried

    return {"child": in_child(work), "parent": outcome(lambda: row.publish(sketch))}


def of_a_client() -> dict[str, Any]:
    client = local.Client(local.SubsetHashing(epsilon=1.0, max_items=2), budget=1.0)

    def work() -> Outcomes:
        own = local.Client(client.protocol, budget=1.0)
        return {
            "report": outcome(lambda: client.report(["tea"])),
            "spent": outcome(lambda: client.spent),
            "guarantee": outcome(lambda: client.guarantee),
            "its own": outcome(lambda: own.report(["tea"])),
        }

    return {"child": in_child(work), "parent": outcome(lambda: client.report(["milk"]))}


def of_a_client_with_a_file() -> dict[str, Any]:
    """The file counts for all processes: the child spends what is left, and the parent sees it."""
    with tempfile.TemporaryDirectory() as folder:
        client = local.Client(local.SubsetHashing(epsilon=1.0, max_items=2), 1.0, Path(folder) / "device")
        child = in_child(lambda: {"its own": outcome(lambda: client.report(["tea"]))})
        return {"child": child, "parent": outcome(lambda: client.report(["milk"])), "spent": client.spent}


def of_a_permit() -> dict[str, Any]:
    spec, budget = dps.CountSketch(rows=3, width=8, unit=dps.per_record()).spec, Budget(1.0, 0)
    permit = Permit.pay(spec, spec.laws(budget), budget, Account(), note="test")
    table = {"counters": np.zeros((3, 8), np.int64)}
    child = in_child(lambda: {"draw_all": outcome(lambda: permit.draw_all(table))})
    return {"child": child, "parent": outcome(lambda: permit.draw_all(table))}


def of_a_classifier() -> dict[str, Any]:
    points, labels = [[1.0, 0.0], [0.0, 1.0]] * 50, ["a", "b"] * 50
    terms: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "classes": ["a", "b"], "unit": dps.per_record()}

    def started() -> Any:
        return dps.DensityClassifier(**terms).partial_fit(points, labels, classes=["a", "b"])

    model = started()
    child = in_child(lambda: {"release": outcome(model.release), "its own": outcome(lambda: started().release())})
    return {"child": child, "parent": outcome(model.release)}


def of_a_stream_folder() -> dict[str, Any]:
    """Forked while its parent holds the folder: the child would hold it as well."""
    shape: dict[str, Any] = {"rows": 1, "width": 4, "unit": dps.per_record(), "key_type": "text"}

    def started() -> Any:
        return dps.ContinualCountSketch(days=3, **shape, epsilon=1.0, delta=1e-6)

    with tempfile.TemporaryDirectory() as place:
        folder = StreamFolder(place)
        folder.begin(started())

        def publish() -> None:
            sketch = folder.load()
            sketch.update(["tea"])
            folder.publish(sketch)

        def hold() -> None:
            with folder.held():
                pass

        def work() -> Outcomes:
            return {
                "load": outcome(folder.load),
                "publish": outcome(publish),
                "publish its own": outcome(lambda: folder.publish(started())),
                "begin": outcome(lambda: folder.begin(started())),
                "token": outcome(folder.token),
                "hold": outcome(hold),
            }

        with folder.held():
            child = in_child(work)
            parent = outcome(publish)
        child |= {f"{name}, later": said for name, said in in_child(work).items()}
    return {"child": child, "parent": parent}


def of_a_grandchild() -> dict[str, Any]:
    """A child's own sketch is a copy in the child's child."""
    row = ROWS[0]

    def work() -> Outcomes:
        mine = row.filled(0)
        below = in_child(lambda: {"show": outcome(lambda: row.publish(mine))})
        return {**below, "its own": outcome(lambda: row.publish(mine))}

    return {"child": in_child(work), "parent": "done"}


if __name__ == "__main__":
    found = {row.name: of_a_sketch(row) for row in ROWS}
    found["client"] = of_a_client()
    found["client with a file"] = of_a_client_with_a_file()
    found["permit"] = of_a_permit()
    found["classifier"] = of_a_classifier()
    found["stream folder"] = of_a_stream_folder()
    found["grandchild"] = of_a_grandchild()
    json.dump(found, sys.stdout)
