"""Parse a GROUP BY query into its source, groups and aggregates, and the clauses on released rows.

*Privacy.* A release protects records, or users, of one source. So what stands in GROUP BY, in WHERE and inside an
aggregate may look at the columns of its own row alone; :mod:`dpsketch.sources.expressions` holds it to that. HAVING,
ORDER BY and LIMIT are computed from the released rows, and cost nothing.

All else is refused, and the refusal says why: joins, subqueries, windows and set operations could let one record touch
many; an aggregate that is not computed privately would publish the data.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from dpsketch.errors import InvalidInput, SourceError
from dpsketch.sources import expressions
from dpsketch.sources.engine import connect
from dpsketch.sources.expressions import RowExpression, parse_expression
from dpsketch.sources.failures import guarded

__all__ = ["Aggregate", "GroupQuery", "parse_group_query"]

_WHAT = "the query"
_QUANTILES = {"median", "quantile", "quantile_cont", "quantile_disc"}
_AGGREGATES = {"count_star", "count", "sum", "avg", "mean", *_QUANTILES}
_SUPPORTED = "COUNT(*), COUNT(x), COUNT(DISTINCT user), SUM, AVG, MEDIAN, QUANTILE_CONT and QUANTILE_DISC"
# What to ask for instead of aggregates that are often wanted.
_INSTEAD = {
    "min": "QUANTILE_CONT(x, 0.01) says where low values begin",
    "max": "QUANTILE_CONT(x, 0.99) says where high values end",
    "stddev": "AVG(x * x) and AVG(x) give it",
    "stddev_samp": "AVG(x * x) and AVG(x) give it",
    "var_samp": "AVG(x * x) and AVG(x) give it",
    "variance": "AVG(x * x) and AVG(x) give it",
    "count_if": "SUM(CASE WHEN condition THEN 1 ELSE 0 END) counts it",
    "approx_count_distinct": "dpsketch run distinct counts different values",
}
_FROM = {
    "EMPTY": "names no source. Say FROM 'file.parquet'",
    "JOIN": "joins sources, so that one record could touch many rows. Join beforehand only what keeps each row "
    "a matter of its own user: with a public table, or by the user",
    "SUBQUERY": "reads a subquery, in which one record could touch many rows. Name a file, a frame or a table",
    "TABLE_FUNCTION": "calls a function in FROM. Name the file itself in quotes, as in FROM 'events.parquet'",
}
_PLACES = {"query_location", "query_location_length", "alias"}
_DIRECTIONS = {"ASCENDING": " ASC", "DESCENDING": " DESC", "ORDER_DEFAULT": ""}
_NULLS = {"NULLS FIRST": " NULLS FIRST", "NULLS LAST": " NULLS LAST", "ORDER_DEFAULT": " NULLS LAST"}


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One aggregate of a query.

    Attributes
    ----------
    kind : {"count", "users", "sum", "mean", "quantiles"}
        The column of a table that it is.
    value : str or None
        The column of the records that is aggregated, computed or not; of ``users`` the one that is counted.
    share : float or None
        The quantile.
    alias : str or None
        The name that the query gives it.
    """

    kind: Literal["count", "users", "sum", "mean", "quantiles"]
    value: str | None = None
    share: float | None = None
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class GroupQuery:
    """Parsed GROUP BY query.

    Attributes
    ----------
    source : str
        What FROM names.
    schema : str or None
        The schema before that name.
    by : tuple of str
        The names of the group columns.
    computed : tuple of RowExpression
        The columns of the records that are computed, group columns and values.
    aggregates : tuple of Aggregate
        The aggregates, in the order of the query.
    where : RowExpression or None
        The condition on the records.
    needed : tuple of str
        What COUNT(x) names: a record without it counts for nothing.
    selected : tuple of str or int
        The columns of the answer: names of group columns, and numbers of aggregates.
    having : str or None
        SQL over the released columns, in which ``#0`` is the first aggregate.
    order : tuple of str
        The same, with directions.
    reads : frozenset of str
        The names that HAVING and ORDER BY read, other than aggregates.
    limit, offset : int or None
        How many rows are shown, and how many are left out before them.
    """

    source: str
    schema: str | None
    by: tuple[str, ...]
    computed: tuple[RowExpression, ...]
    aggregates: tuple[Aggregate, ...]
    where: RowExpression | None
    needed: tuple[str, ...]
    selected: tuple[str | int, ...]
    having: str | None = None
    order: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()
    limit: int | None = None
    offset: int | None = None

    def check(self, names: Sequence[str]) -> None:
        """Refuse HAVING and ORDER BY if they read something else than the released columns of these names."""
        released = {name.casefold() for name in names}
        for name in sorted(self.reads):
            if name.casefold() not in released:
                raise InvalidInput(
                    f"HAVING and ORDER BY read the released columns, and {name!r} is none of them. Select it in the "
                    "query as well, or put a condition on records into WHERE."
                )

    def places(self, released: pa.Table, aggregates: Sequence[str]) -> list[int]:
        """Return the places of the released rows that the query shows, in its order.

        Parameters
        ----------
        released : pyarrow.Table
            The rows.
        aggregates : sequence of str
            The name of each aggregate's column.
        """
        columns = {name: released.column(name) for name in released.column_names}
        columns |= {f"#{place}": released.column(name) for place, name in enumerate(aggregates)}
        table = pa.table({**columns, "#": pa.array(range(released.num_rows), pa.int64())})

        def found() -> list[int]:
            with closing(connect()) as connection:
                connection.execute("SET TimeZone = 'UTC'")
                connection.execute("SET enable_external_access = false")
                rows = connection.from_arrow(table)
                if self.having is not None:
                    if rows.project(self.having).types[0] != "BOOLEAN":
                        raise _unfit()
                    rows = rows.filter(self.having)
                rows = rows.order(", ".join([*self.order, '"#"'])).project('"#"')
                places = [int(each[0]) for each in rows.fetchall()]
            first = self.offset or 0
            return places[first:] if self.limit is None else places[first : first + self.limit]

        return guarded(found, lambda _: _unfit())


def _unfit() -> SourceError:
    return SourceError(
        "HAVING or ORDER BY does not fit the types of the released columns. HAVING is a condition, as in COUNT(*) > "
        "100; counts, sums, means and quantiles are numbers."
    )


def parse_group_query(text: str) -> GroupQuery:
    """Read a query that groups, and refuse all that cannot be released as one table."""
    node = _select(expressions.parsed(text, _WHAT))
    if node is None:
        raise InvalidInput(
            "the query is not one SELECT statement of DuckDB's SQL. Check its quotes: 'text', and \"a column\"."
        )
    _check_shape(node)
    return _Reader().query(_without_source(node))


def _select(tree: Any) -> Any:
    if tree.get("error") or len(tree.get("statements", ())) != 1:
        return None
    return tree["statements"][0]["node"]


def _check_shape(node: Any) -> None:
    """Refuse a query unless it is one SELECT from one source, with one set of groups."""
    if node["type"] == "SET_OPERATION_NODE":
        raise _refusal("combines queries, whose rows one record could touch twice. Release one query at a time")
    source = node.get("from_table") or {}
    if node["type"] != "SELECT_NODE" or source.get("type") == "SHOW_REF":
        raise _refusal("is not a SELECT that groups")
    if (node.get("cte_map") or {}).get("map"):
        raise _refusal("has a WITH, in which one record could touch many rows. Name one source in FROM")
    if source.get("type") != "BASE_TABLE":
        kind = str(source.get("type"))
        raise _refusal(_FROM.get(kind, f"reads a source of the kind {kind.lower()}. Name one file, frame or table"))
    if source.get("sample") or node.get("sample"):
        raise _refusal("samples records. Leave that out: noise is drawn for all of them")
    if source.get("at_clause") or source.get("column_name_alias") or source.get("catalog_name"):
        raise _refusal("says more about its source than a name. Name one file, frame or table")
    if node.get("qualify"):
        raise _refusal("has a QUALIFY, and windows could let one record touch many rows. Leave it out")
    if node["aggregate_handling"] not in ("STANDARD_HANDLING", "FORCE_AGGREGATES"):
        raise _refusal("groups in a way that is not supported. Say GROUP BY columns, or GROUP BY ALL")
    listed = node["group_expressions"]
    if node["aggregate_handling"] == "STANDARD_HANDLING" and not listed:
        raise _refusal("has no groups. Say GROUP BY columns; the rollup of a released table adds all groups up")
    if listed and node["group_sets"] != [list(range(len(listed)))]:
        raise _refusal(
            "has grouping sets (ROLLUP, CUBE or GROUPING SETS). Group by all of their columns: the released table's "
            "rollup adds groups up, at no cost"
        )


def _refusal(words: str) -> InvalidInput:
    return InvalidInput(f"{_WHAT} {words}.")


def _without_source(node: Any) -> Any:
    """Return a query in which no column has its source's name before its own."""
    source = node["from_table"]
    titles = {str(each).casefold() for each in (source["table_name"], source["alias"]) if each}

    def bare(each: Any) -> Any:
        names = each.get("column_names", ())
        if each.get("class") != "COLUMN_REF" or len(names) != 2 or names[0].casefold() not in titles:
            return each
        return {**each, "column_names": names[1:]}

    return expressions.replaced(node, bare)


@dataclass(slots=True)
class _Reader:
    """Reads the parts of one query, one after the other.

    Attributes
    ----------
    computed : dict
        The columns of records that are computed, by name.
    aggregates : list of Aggregate
        The aggregates so far.
    released : dict
        The name under which HAVING and ORDER BY read an expression, by its tree.
    there : list of str
        What has to be there of a record, since a COUNT names it.
    """

    computed: dict[str, RowExpression] = field(default_factory=dict)
    aggregates: list[Aggregate] = field(default_factory=list)
    released: dict[str, str] = field(default_factory=dict)
    there: list[str] = field(default_factory=list)

    def query(self, node: Any) -> GroupQuery:
        """Return the query."""
        source, items = node["from_table"], node["select_list"]
        groups = [self._named_group(each, items) for each in _groups(node, items)]
        by = tuple(dict.fromkeys(map(self._group, groups)))
        own, keys = set(self.computed), dict(self.released)
        selected = [keys[_key(item)] if _key(item) in keys else self._aggregate(item) for item in items]
        if not self.aggregates:
            raise _refusal(f"has no aggregate. Select one of {_SUPPORTED}")
        if len(set(selected)) < len(selected):
            raise _refusal("selects a column twice. Select it once")
        if clash := sorted(own & {str(each.value) for each in self.aggregates}):
            raise _refusal(f"has the alias {clash[0]!r}, and an aggregate of a column of that name. Rename the alias")
        having, order, reads = self._after(node, items)
        limit, offset = _limit(node)
        return GroupQuery(
            source["table_name"], source["schema_name"] or None, by, tuple(self.computed.values()),
            tuple(self.aggregates), self._where(node["where_clause"]), tuple(dict.fromkeys(self.there)),
            tuple(selected), having, order, reads, limit, offset,
        )  # fmt: skip

    def _named_group(self, group: Any, items: list[Any]) -> Any:
        """Return what GROUP BY means by an alias or an expression: a selected item, where it is one."""
        if group["class"] == "COLUMN_REF":
            (name,) = group["column_names"] if len(group["column_names"]) == 1 else [""]
            aliased = [each for each in items if each["alias"].casefold() == name.casefold() != ""]
            if aliased and not any(_key(each) == _key(group) for each in items):
                if name.casefold() in {each.casefold() for each in _names(aliased[0])}:
                    raise _refusal(
                        f"groups by {name!r}, which is both a column and the alias of what is computed from it. Say "
                        "GROUP BY ALL, or choose another alias"
                    )
                return aliased[0]
        return next((each for each in items if _key(each) == _key(group)), group)

    def _group(self, group: Any) -> str:
        """Note a group column, and return its name."""
        name = self._column(group, group["alias"])
        self.released.setdefault(_key(group), name)
        return self.released[_key(group)]

    def _column(self, tree: Any, alias: str = "") -> str:
        """Return the name of a column of the records; one that is computed is noted."""
        if tree["class"] == "COLUMN_REF" and len(tree["column_names"]) == 1 and not alias:
            return str(tree["column_names"][0])
        _refuse_aggregates(tree)
        found = parse_expression(expressions.written({**tree, "alias": ""}, _WHAT), _WHAT)
        name = alias or found.text
        if self.computed.setdefault(name, replace(found, name=name)).text != found.text:
            raise _refusal("gives two columns one name. Rename one, with AS")
        return name

    def _aggregate(self, item: Any) -> int:
        """Note an aggregate, and return its number."""
        found = replace(self._kind_of(item), alias=item["alias"] or None)
        if found in self.aggregates and found.kind == "count":
            raise _refusal(
                "counts records twice. A record whose x is missing counts for nothing in the whole table, so that "
                "COUNT(x) is COUNT(*): select one, and SUM(CASE WHEN x IS NULL THEN 0 ELSE 1 END) beside COUNT(*)"
            )
        if found in self.aggregates:
            raise _refusal("selects a column twice. Select it once")
        self.aggregates.append(found)
        number = len(self.aggregates) - 1
        self.released.setdefault(_key(item), f"#{number}")
        return number

    def _kind_of(self, item: Any) -> Aggregate:
        _refuse_unknown(item)
        name, arguments = item["function_name"], [each["expression"] for each in item["arguments"]]
        if name in _QUANTILES:
            return self._quantile(name, arguments, (item["order_bys"] or {}).get("orders") or [])
        if (item["order_bys"] or {}).get("orders"):
            raise _refusal(f"orders what {name} reads, which changes nothing. Leave that out")
        if name == "count_star":
            return Aggregate("count")
        if name == "count" and len(arguments) == 1 and arguments[0]["class"] == "CONSTANT":
            if item["distinct"] or (arguments[0].get("literal") or {}).get("kind") == "NULL_LITERAL":
                raise _refusal("counts a constant, which says nothing of records. COUNT(*) counts these")
            return Aggregate("count")
        if len(arguments) != 1:
            raise _refusal(f"gives {name} {len(arguments)} arguments. It takes one")
        (argument,) = arguments
        if name == "count" and item["distinct"]:
            if argument["class"] != "COLUMN_REF":
                raise _refusal("counts different values of an expression. COUNT(DISTINCT …) takes the user's column")
            return Aggregate("users", self._column(argument))
        value = self._column(argument)
        if name == "count":
            self.there.append(expressions.written({**argument, "alias": ""}, _WHAT))
            return Aggregate("count")
        return Aggregate("sum" if name == "sum" else "mean", value)

    def _quantile(self, name: str, arguments: list[Any], orders: list[Any]) -> Aggregate:
        """Return MEDIAN(x), QUANTILE_CONT(x, q), or PERCENTILE_CONT(q) WITHIN GROUP (ORDER BY x)."""
        falls = False
        if len(orders) == 1 and len(arguments) == 1:
            falls = orders[0]["type"] == "DESCENDING"
            arguments, orders = [orders[0]["expression"], *arguments], []
        if orders or len(arguments) != (1 if name == "median" else 2):
            raise _refusal("has a quantile in a form that is not supported. Say QUANTILE_CONT(x, 0.9)")
        share = 0.5 if name == "median" else _share(arguments[1])
        return Aggregate("quantiles", self._column(arguments[0]), 1 - share if falls else share)

    def _where(self, condition: Any) -> RowExpression | None:
        """Return the condition on records: that of WHERE, and that what a COUNT names is there."""
        parts = [] if condition is None else [expressions.written(condition, _WHAT)]
        parts += [f"({each}) IS NOT NULL" for each in dict.fromkeys(self.there)]
        return parse_expression(" AND ".join(f"({each})" for each in parts), _WHAT) if parts else None

    def _after(self, node: Any, items: list[Any]) -> tuple[str | None, tuple[str, ...], frozenset[str]]:
        """Return HAVING and ORDER BY as SQL over released columns, and the names that they read."""
        reads: set[str] = set()

        def sql(tree: Any) -> str:
            found = self._released(tree)
            for each in expressions.nodes(found):
                if (fault := expressions.fault(each)) is not None:
                    raise _refusal(f"has {fault}. HAVING and ORDER BY are row by row, over the released columns")
            reads.update(name for name in _names(found) if not name.startswith("#"))
            # What cannot be computed of a row is null, as the release is paid for by then.
            return f"TRY({expressions.written(found, _WHAT)})"

        having = None if node["having"] is None else sql(node["having"])
        order = []
        for each in _modifiers(node, "ORDER_MODIFIER", "orders"):
            tree = each["expression"]
            if tree["class"] == "STAR":
                raise _refusal("has ORDER BY ALL. Name the columns, or their numbers")
            tree = _item_of(tree, items, "ORDER BY") if tree["class"] == "CONSTANT" else tree
            nulls = str(each["null_order"]).replace("_", " ")
            order.append(sql(tree) + _DIRECTIONS[each["type"]] + _NULLS.get(nulls, " NULLS LAST"))
        return having, tuple(order), frozenset(reads)

    def _released(self, tree: Any) -> Any:
        """Return a tree that reads released columns, where it has aggregates and expressions of groups."""
        if isinstance(tree, list):
            return [self._released(each) for each in tree]
        if not isinstance(tree, dict):
            return tree
        if "class" in tree:
            if (name := self.released.get(_key(tree))) is not None:
                return expressions.column(name)
            if tree["class"] == "FUNCTION" and tree["function_name"] in _AGGREGATES:
                raise _refusal("has an aggregate in HAVING or ORDER BY that it does not select. Select it as well")
        return {name: self._released(each) for name, each in tree.items()}


def _key(tree: Any) -> str:
    """Return an expression as a text that is equal for equal expressions."""

    def bare(value: Any) -> Any:
        if isinstance(value, list):
            return [bare(each) for each in value]
        if isinstance(value, dict):
            found = {name: bare(each) for name, each in value.items() if name not in _PLACES}
            if value.get("class") == "COLUMN_REF":  # whose case does not matter in SQL
                found["column_names"] = [str(name).casefold() for name in value["column_names"]]
            return found
        return value

    return json.dumps(bare(tree), sort_keys=True)


def _groups(node: Any, items: list[Any]) -> list[Any]:
    """Return the expressions of GROUP BY: numbers are selected items, and ALL those without an aggregate."""
    if any(each["class"] == "STAR" for each in items):
        raise _refusal("selects *. Select group columns and aggregates")
    if node["aggregate_handling"] == "FORCE_AGGREGATES":
        found = [each for each in items if not (_has_aggregate(each) or _is_foreign(each))]
    else:
        listed = node["group_expressions"]
        found = [_item_of(each, items, "GROUP BY") if each["class"] == "CONSTANT" else each for each in listed]
    if not found:
        raise _refusal("has no groups. Say GROUP BY columns; the rollup of a released table adds all groups up")
    return found


def _item_of(constant: Any, items: list[Any], where: str) -> Any:
    """Return the selected item that a number means."""
    literal = constant.get("literal") or {}
    number = int(literal["text"]) if literal.get("kind") == "INTEGER" else 0
    if not 1 <= number <= len(items):
        raise _refusal(f"has a constant in {where} that is no number of a selected column")
    return items[number - 1]


def _names(tree: Any) -> list[str]:
    """Return the columns that an expression reads."""
    return [str(each["column_names"][-1]) for each in expressions.nodes(tree) if each["class"] == "COLUMN_REF"]


def _has_aggregate(tree: Any) -> bool:
    functions = (each for each in expressions.nodes(tree) if each["class"] == "FUNCTION")
    return any(each["function_name"] in _AGGREGATES for each in functions)


def _is_foreign(item: Any) -> bool:
    """Say whether an item is a function that no row is computed with: an aggregate that is not supported."""
    return item["class"] == "FUNCTION" and item["function_name"] not in expressions.FUNCTIONS


def _refuse_aggregates(tree: Any) -> None:
    if _has_aggregate(tree):
        raise _refusal("has an aggregate inside an aggregate, a group or a condition. Aggregate what stands in a row")


def _refuse_unknown(item: Any) -> None:
    """Refuse a selected item that is neither a group nor a supported aggregate."""
    if item["class"] == "WINDOW":
        raise _refusal("has a window, in which one record could touch many rows. Leave it out")
    if item["class"] == "SUBQUERY":
        raise _refusal("has a subquery, in which one record could touch many rows. Leave it out")
    if not (item["class"] == "FUNCTION" and (item["function_name"] in _AGGREGATES or _is_foreign(item))):
        if _has_aggregate(item):
            raise _refusal("computes with an aggregate. Select the aggregate, and compute with the released frame")
        raise _refusal("selects what is neither in GROUP BY nor an aggregate. Say GROUP BY ALL")
    name = item["function_name"]
    if _is_foreign(item) and name not in _AGGREGATES:
        instead = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
        raise _refusal(f"has {name}, which is no aggregate that can be released. There are {_SUPPORTED}{instead}")
    if item["filter"]:
        raise _refusal("has a FILTER. Write SUM(CASE WHEN condition THEN x ELSE 0 END), or put it into WHERE")
    if item["distinct"] and name != "count":
        raise _refusal(f"has DISTINCT in {name}. Only COUNT(DISTINCT user) is supported")
    if item["schema"] or item["catalog"]:
        raise _refusal("calls a function of a schema. There are " + _SUPPORTED)


def _share(tree: Any) -> float:
    """Return the quantile that a constant states."""
    literal = tree.get("literal") or {}
    if tree["class"] != "CONSTANT" or literal.get("kind") not in ("NUMERIC", "INTEGER"):
        raise _refusal("has a quantile that is no number. Say one at a time, as in QUANTILE_CONT(x, 0.9)")
    return float(literal["text"])


def _modifiers(node: Any, kind: str, part: str) -> list[Any]:
    return [each for modifier in node["modifiers"] if modifier["type"] == kind for each in modifier[part]]


def _limit(node: Any) -> tuple[int | None, int | None]:
    """Return LIMIT and OFFSET; refuse what else a query says about its answer."""
    found: list[int | None] = [None, None]
    for modifier in node["modifiers"]:
        if modifier["type"] == "ORDER_MODIFIER":
            continue
        if modifier["type"] != "LIMIT_MODIFIER":
            raise _refusal("has SELECT DISTINCT. Each group has one row: leave DISTINCT out")
        for place, name in enumerate(("limit", "offset")):
            tree = modifier[name]
            literal = {} if tree is None else tree.get("literal") or {}
            if tree is None:
                continue
            if modifier["limit_type"] != "ROW_COUNT" or literal.get("kind") != "INTEGER" or int(literal["text"]) < 0:
                raise _refusal("has a LIMIT or OFFSET that is no whole number of rows")
            found[place] = int(literal["text"])
    return found[0], found[1]
