"""Fork a process that holds one object of every kind, and say what the child was allowed: run by ``test_fork``.

A script of its own: a test runner may have threads, and forking a process that has them is unsafe.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain
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

Action = Callable[[], object]
# What a child tries with what its parent holds, under "its own" with what it made itself; and what the parent does.
Held = tuple[dict[str, Action], Action]
TEA = ["tea"]


def outcome(action: Action) -> str:
    """Say how an action ended: refused as a copy, refused for another reason, or done."""
    try:
        action()
    except ReleaseRefused as refusal:
        return "refused" if "fork" in str(refusal) else str(refusal)
    except (DpsketchError, TypeError) as other:
        return f"{type(other).__name__}: {other}"
    return "done"


def in_child(actions: dict[str, Action]) -> dict[str, str]:
    """Return how actions ended in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps({name: outcome(action) for name, action in actions.items()}).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        found: dict[str, str] = json.loads(said.read() or b'{"the child": "died"}')
    os.waitpid(child, 0)
    return found


def of_a_sketch(row: Row) -> Held:
    """All its methods, and a partial that was started for it."""
    sketch, kind = row.filled(0), type(row.start())
    methods = [name for name in dir(kind) if name[0] != "_" and isinstance(getattr(kind, name), FunctionType)]
    # The refusal comes before the arguments are looked at.
    tried: dict[str, Action] = {name: getattr(sketch, name) for name in methods}
    tried |= {"add": lambda: row.add(sketch, 1), "show": lambda: row.publish(sketch)}
    if row.merges:
        partner = row.partner(sketch, 1)
        tried |= {"merge into it": lambda: sketch.merge(partner), "merge it": lambda: row.filled(1).merge(partner)}
    return {**tried, "its own": lambda: row.publish(row.filled(1))}, lambda: row.publish(sketch)


def of_a_child() -> None:
    """Publish, in a child of its own, what this process made."""
    mine = ROWS[0].filled(0)
    said = in_child({"show": lambda: ROWS[0].publish(mine)})
    if said == {"show": "refused"}:
        raise ReleaseRefused("it was made before a fork.")


def others(folder: str, held: ExitStack) -> Iterator[tuple[str, Held]]:
    """Yield what else a process may hold; the parent holds a stream's folder until the stack is closed."""
    client = local.Client(local.SubsetHashing(epsilon=1.0, max_items=2), budget=1.0)
    tried: dict[str, Action] = {
        "report": lambda: client.report(TEA),
        "spent": lambda: client.spent,
        "guarantee": lambda: client.guarantee,
        "its own": lambda: local.Client(client.protocol, budget=1.0).report(TEA),
    }
    yield "client", (tried, lambda: client.report(TEA))

    # Its file counts for all processes: the child spends what is left, and the parent sees it.
    filed = local.Client(client.protocol, 1.0, Path(folder) / "device")
    yield "client with a file", ({"its own": lambda: filed.report(TEA)}, lambda: filed.report(["milk"]))

    spec, budget = dps.CountSketch(rows=3, width=8, unit=dps.per_record()).spec, Budget(1.0, 0)
    permit = Permit.pay(spec, spec.laws(budget), budget, Account(), note="test")
    table = {"counters": np.zeros((3, 8), np.int64)}
    yield "a child's own sketch", ({"show": of_a_child}, lambda: None)
    yield "permit", ({"draw_all": lambda: permit.draw_all(table)}, lambda: permit.draw_all(table))

    def fitted() -> Any:
        model = dps.DensityClassifier(epsilon=1.0, delta=1e-6, classes=["a", "b"], unit=dps.per_record())
        return model.partial_fit([[1.0, 0.0], [0.0, 1.0]] * 50, ["a", "b"] * 50, classes=["a", "b"])

    model = fitted()
    yield "classifier", ({"release": model.release, "its own": lambda: fitted().release()}, model.release)

    def stream() -> Any:
        shape: dict[str, Any] = {"rows": 1, "width": 4, "unit": dps.per_record(), "key_type": "text"}
        return dps.ContinualCountSketch(days=3, **shape, epsilon=1.0, delta=1e-6)

    days = StreamFolder(Path(folder) / "stream")
    days.begin(stream())
    tried = {
        "load": days.load,
        "publish": lambda: days.publish(days.load()),
        "publish its own": lambda: days.publish(stream()),
        "begin": lambda: days.begin(stream()),
        "token": days.token,
        "hold": lambda: days.held().__enter__(),
    }
    held.enter_context(days.held())
    yield "stream folder", (tried, lambda: days.publish(days.load()))
    held.close()
    yield "stream folder, later", (tried, days.load)


def main() -> None:
    """Say what each child was allowed, and then its parent."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as held:
        for name, (tried, goes_on) in chain(((row.name, of_a_sketch(row)) for row in ROWS), others(folder, held)):
            found[name] = {"child": in_child(tried), "parent": outcome(goes_on)}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
