"""What each dependency weighs: ``python -m distribution.sizes`` prints the table of docs/reference/install.md.

A dependency's size is that of its files and of all that no other one brings, in the environment that runs this.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from distribution.materials import key_of, needed

PURPOSES = {
    "numpy": "tables",
    "scipy": "special functions for calibration and intervals; flows for distinct counts",
    "numba": "compiled kernels: hashing, counting, decoding",
    "pyarrow": "release files, frames, CSV and Parquet",
    "xxhash": "fingerprints of keys",
    "mpmath": "exact costs, and noise whose law is exact",
    "duckdb": "reading, conditions, grouping and bounding users",
    "dp-accounting": "composition by privacy loss distributions, in ledgers and guarantees",
    "click": "the command line",
    "markdown-it-py": "reports of `dpsketch reproduce`",
    "matplotlib": "`dpsketch plot` and `.plot()`",
    "fastapi": "the service: routes and their description",
    "uvicorn": "the service: HTTP",
    "uvloop": "the service: its event loop",
    "httptools": "the service: parsing of requests",
    "prometheus-client": "the service: `/metrics`",
    "psycopg": "ledgers and stores in PostgreSQL",
    "adbc-driver-postgresql": "sources in PostgreSQL",
    "opentelemetry-sdk": "spans of the service",
    "opentelemetry-exporter-otlp-proto-http": "spans of the service, sent",
    "pandas": "answers as pandas frames",
    "polars": "answers as polars frames",
    "scikit-learn": "`DensityClassifier`, an estimator",
    "pyspark": "counting on a cluster; needs Java",
    "opendp": "a rival that reproductions compare with",
}
_NOT_LISTED = ("docs", "dev")


def main() -> None:
    """Print the table, the plain install first."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    extras: dict[str, str] = {}
    reached: dict[str, set[str]] = {}
    for extra, texts in groups.items():
        for requirement in map(Requirement, texts if extra not in _NOT_LISTED else ()):
            name = key_of(requirement.name)
            extras.setdefault(name, extra)
            reached[name] = closure(name, requirement.extras)
    print("| dependency | extra | for | MB |\n|---|---|---|--:|")
    for name, extra in sorted(extras.items(), key=lambda item: (item[1], item[0])):
        others = [reached[other] | {other} for other in reached if other != name and extras[other] in ("", extra)]
        total = sum(map(size, {name} | reached[name].difference(*others)))
        print(f"| {name} | {extra and f'`{extra}`'} | {PURPOSES.get(name, '')} | {total / 1e6:.1f} |")
    plain = set[str]().union(*(reached[name] for name, extra in extras.items() if not extra))
    print(f"\nThe plain install takes {sum(map(size, plain)) / 1e6:.0f} MB beside dpsketch itself.")


def closure(name: str, extras: Iterable[str] = ()) -> set[str]:
    """Return a distribution and all that it needs, as far as they are installed."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in found and (held := installed(one)) is not None:
            found.add(one)
            waiting += needed(held, extras if one == name else ())
    return found


def installed(name: str) -> Distribution | None:
    """Return an installed distribution, if it is there."""
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None


def size(name: str) -> int:
    """Return the bytes of a distribution's files, without what Python compiled from them."""
    files = distribution(name).files or []
    paths = [Path(str(file.locate())) for file in files if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file())


if __name__ == "__main__":
    main()
