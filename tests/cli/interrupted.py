"""Run commands and end each at one step. A script that the tests of what an interruption leaves talk to.

It loads everything once. Each line of its input is a command as JSON: `arguments`, `folder`, `environment`, the `step`
at which it ends, and `how`: `kill` (SIGKILL, as a power cut), `full` (the disk is full), `interrupt` (Ctrl-C) or
`broken` (the disk fails). The step is not done, or where `once` is set, only not the first time. A process of its own
runs the command; its exit code, output and messages are the answer.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

import dpsketch.cli.run
import dpsketch.kinds  # noqa: F401
from dpsketch.cli import main, recipes, spool  # noqa: F401
from dpsketch.laws.stable import Secret
from dpsketch.ledger import Payment
from dpsketch.noise import DiscreteLaplace, RoundedGaussian
from dpsketch.privacy import per_record
from dpsketch.sketches import feed  # noqa: F401
from dpsketch.sketches.distinct import DistinctSketch
from dpsketch.sketches.moment import MomentSketch
from dpsketch.sources import open_source  # noqa: F401

STEPS: dict[str, list[tuple[Any, str]]] = {
    "none": [],
    "charge": [(Payment, "charge")],
    "draw": [(DiscreteLaplace, "sample"), (RoundedGaussian, "sample"), (Secret, "add")],
    "fit": [(spool.Spool, "fit")],
    "close": [(Payment, "close")],
    "write": [(spool, "_write_at")],
    "finish": [(spool.Spool, "finish")],
    "overwrite": [(spool, "_overwrite")],
    "place": [(spool.Spool, "_place")],
    "rename": [(spool, "_rename_new")],
}


def interrupt(home: Any, name: str, how: str, once: bool) -> None:
    real, times = getattr(home, name), [0]

    def ending(*arguments: Any, **options: Any) -> Any:
        times[0] += 1
        if once and times[0] > 1:
            return real(*arguments, **options)
        match how:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "full":
                raise OSError(errno.ENOSPC, "No space left on device")
            case "broken":
                raise OSError(errno.EIO, "Input/output error")
        raise KeyboardInterrupt

    setattr(home, name, ending)


def run(command: dict[str, Any], out: Path, err: Path) -> int:
    os.chdir(command["folder"])
    os.environ.update(command["environment"])
    for number, path in ((1, out), (2, err)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(opened, number)
    if command["largest_file"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (command["largest_file"],) * 2)
    for home, name in STEPS[command["step"]]:
        interrupt(home, name, command["how"], command["once"])
    sys.argv = ["dpsketch", *command["arguments"]]
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    return code


if __name__ == "__main__":
    for sketch in (DistinctSketch(unit=per_record()), MomentSketch(p=0.5, size=20, unit=per_record())):
        sketch.update(["a"])
        sketch.release(epsilon=1, delta=0 if isinstance(sketch, DistinctSketch) else 1e-6)
    out, err = (Path(sys.argv[1]) / name for name in ("out", "err"))
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = run(json.loads(line), out, err)
            finally:
                os._exit(code)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps({"code": status, "out": out.read_text(), "err": err.read_text()}), flush=True)
