"""Tables: a private GROUP BY in one release."""

from dpsketch.sketches.table.columns import Column, count, mean, quantiles, sum, users
from dpsketch.sketches.table.private import PrivateTable
from dpsketch.sketches.table.sketch import Table
from dpsketch.sketches.table.spec import TableSpec

__all__ = ["Column", "PrivateTable", "Table", "TableSpec", "count", "mean", "quantiles", "sum", "users"]
