"""Read files one by one, each in a process that has read no other: run by ``test_kind_rows``.

A class is known to the codec once its module is imported, so that another file may have imported what this one needs.
"""

from __future__ import annotations

import os
import sys

import dpsketch as dps

for name in ("dp_accounting.pld.pld_pmf", "numba", "pandas", "pyarrow.dataset", "scipy.stats", "xxhash"):
    __import__(name)  # what is not dpsketch is imported once


def main() -> None:
    refused = []
    for name in sys.argv[1:]:
        child = os.fork()
        if child == 0:
            try:
                (dps.load_sensitive if name.endswith(".sketch") else dps.load)(name)
            except BaseException as error:
                print(f"{name}: {error!r}", file=sys.stderr, flush=True)
                os._exit(1)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            refused.append(name)
    sys.exit(len(refused))


if __name__ == "__main__":
    main()
