"""A Spark session for the command line."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dpsketch.errors import SourceError
from dpsketch.spark.merge import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["opened"]


@contextmanager
def opened(master: str) -> Iterator[SparkSession]:
    """Start a session on a cluster, ``local[2]``, ``spark://…``, ``yarn`` or ``sc://…``, and stop it at the end.

    Where one is active already, that one is used and goes on.
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    builder = SparkSession.builder.appName("dpsketch")
    if master.startswith("sc://"):
        builder = builder.remote(master)
    else:
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise SourceError("Spark needs Java, and there is none. Install one, such as openjdk-17-jre-headless.")
        builder = builder.master(master).config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
    if master.startswith("local"):
        # Workers on this machine are this Python; the driver and they talk to each other and to nobody else.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        for name in ("spark.driver.bindAddress", "spark.driver.host"):
            builder = builder.config(name, "127.0.0.1")
    session = run(builder.getOrCreate)
    try:
        yield session
    finally:
        session.stop()
