"""Sketches of data that lives on a Spark cluster; needs ``pip install 'dpsketch[spark]'`` and Java.

:func:`build` counts the records of a DataFrame, :func:`build_files` those of files, which tasks then read themselves,
and :func:`receive` collects the reports of a local protocol. :func:`release_histogram` and :func:`release_table` group
records that stay on the cluster. :class:`PanPrivateStream` keeps a pan-private sketch over a structured stream,
:class:`DailyStream` publishes one day by day. Only the DataFrame API is used, so that all of it also runs over Spark
Connect. dpsketch must be installed on the executors too.
"""

try:
    from dpsketch.spark.construction import build, build_files, receive
    from dpsketch.spark.histograms import release_histogram
    from dpsketch.spark.streaming import DailyStream, PanPrivateStream
    from dpsketch.spark.tables import release_table
except ModuleNotFoundError as missing:
    words = f"dpsketch.spark needs {missing.name}, which is not installed: pip install 'dpsketch[spark]'."
    raise ModuleNotFoundError(words, name=missing.name) from None

__all__ = ["DailyStream", "PanPrivateStream", "build", "build_files", "receive", "release_histogram", "release_table"]
