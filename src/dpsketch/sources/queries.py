"""A query that selects rows of one source: which file, which columns, computed or not, and under which condition.

*Privacy.* A row of the answer is made of one row of the source, and each row of the source makes one row or none. A
join, a group, a window, a distinct, a limit or a union would let one record change many rows of the answer, also rows
of other users: keeping the column that says whose a row is does not undo that. They are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from dpsketch.errors import InvalidInput
from dpsketch.sources.expressions import RowExpression, parse_expression, parsed, written

__all__ = ["RowQuery", "parse_query"]

_WHAT = "--sql"
_SHAPE = (
    "--sql is SELECT columns FROM 'files' WHERE condition, over one source and row by row. A join, a group, a window, "
    "distinct, limit, order, union or subquery could let one record touch many rows, and is refused"
)
_PLACES = {"query_location", "query_location_length"}
_TABLE = {"type", "table_name", "qualified_name", "alias", *_PLACES}


@dataclass(frozen=True, slots=True)
class RowQuery:
    """What a query reads.

    Attributes
    ----------
    source : str
        The file or glob.
    computed : tuple of RowExpression
        The columns that are computed or renamed, under the names they have in the answer.
    names : frozenset of str or None
        The columns of the answer; None for all of the source, and those computed.
    where : RowExpression or None
        The condition.
    """

    source: str
    computed: tuple[RowExpression, ...]
    names: frozenset[str] | None
    where: RowExpression | None

    def check(self, wanted: Mapping[str, str | None]) -> None:
        """Refuse names, by option, that the query does not select."""
        for option, name in wanted.items():
            if name is not None and self.names is not None and name not in self.names:
                raise InvalidInput(f"{option} names {name!r}, which --sql does not select. Name it there, or SELECT *.")


@cache
def parse_query(text: str) -> RowQuery:
    """Read a query, and refuse one whose rows are not made of one row of its source each."""
    node = _select(parsed(text, _WHAT))
    if node is None:
        raise InvalidInput(f"{_SHAPE}.")
    where = node["where_clause"]
    computed: list[RowExpression] = []
    names: list[str] | None = []
    for item in node["select_list"]:
        if item["class"] == "STAR":
            if any(value for name, value in item.items() if name not in {"class", "type", *_PLACES}):
                raise InvalidInput(f"{_SHAPE}. Of *, nothing is left out or replaced.")
            names = None
            continue
        name = item.get("alias") or (item.get("column_names") or [""])[-1]
        if not name:
            raise InvalidInput("--sql computes a column without a name: say … AS name.")
        if item["class"] != "COLUMN_REF" or item.get("alias"):
            found = parse_expression(written({**item, "alias": ""}, _WHAT), _WHAT)
            computed.append(replace(found, name=name))
        elif len(item["column_names"]) > 1:
            raise InvalidInput(f"{_SHAPE}. A column has its name alone, without a table's before it.")
        if names is not None:
            names.append(name)
    if names is not None and len(set(names)) < len(names):
        raise InvalidInput("--sql gives two columns one name. Rename one, with AS.")
    if len({each.name for each in computed}) < len(computed):
        raise InvalidInput("--sql gives two columns one name. Rename one, with AS.")
    condition = None if where is None else parse_expression(written(where, _WHAT), _WHAT)
    chosen = None if names is None else frozenset(names)
    return RowQuery(node["from_table"]["table_name"], tuple(computed), chosen, condition)


def _select(tree: Any) -> Any:
    """Return the node of a statement that selects from one table, and does nothing else; or None."""
    if tree.get("error") or len(tree.get("statements", ())) != 1:
        return None
    node = tree["statements"][0]["node"]
    table = node.get("from_table") or {}
    others = {name: value for name, value in node.items() if name not in ("select_list", "from_table", "where_clause")}
    plain = others.pop("type", None) == "SELECT_NODE" and others.pop("aggregate_handling", None) == "STANDARD_HANDLING"
    plain = plain and not (others.pop("cte_map", None) or {}).get("map") and not any(others.values())
    plain = plain and table.get("type") == "BASE_TABLE" and bool(table.get("table_name"))
    return node if plain and not any(value for name, value in table.items() if name not in _TABLE) else None
