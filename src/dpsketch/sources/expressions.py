"""SQL over the columns of one row: conditions, and keys that are computed. DuckDB parses and computes them.

*Privacy.* A guarantee holds for the rows of the source: adding or removing a row must add or remove what that row alone
becomes. So an expression may look at the columns of its own row, and at nothing else. It is parsed, and every node of
it must be of a kind on a list below, with functions from a list: no subquery, window, aggregate or set operation, no
function that depends on the time, on chance or on files. What is on no list is refused. Types come from the source's
schema or from the expression, never from values: CSV and TSV have no schema, so that their columns are text, and
numbers where the expression compares or computes with a number; a field that is no number is then missing. A row for
which a condition is not true, a null included, is left out.

A query selects rows of one source: which file, which columns, computed or not, and under which condition. A row of the
answer is made of one row of the source, and each row of the source makes one row or none. A join, a group, a window, a
distinct, a limit or a union would let one record change many rows of the answer, also rows of other users: keeping the
column that says whose a row is does not undo that. They are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pyarrow as pa

from dpsketch.errors import InvalidInput, SourceError
from dpsketch.sources.engine import connect
from dpsketch.sources.failures import guarded, invalid
from dpsketch.sources.formats import nothing_of
from dpsketch.sources.values import Columns, Place

__all__ = [
    "FUNCTIONS", "RowExpression", "RowExpressions", "RowQuery", "column", "fault", "nodes", "parse_expression",
    "parse_query", "parsed", "replaced", "written",
]  # fmt: skip

_CLASSES = {
    "COLUMN_REF", "CONSTANT", "COMPARISON", "CONJUNCTION", "OPERATOR", "FUNCTION", "CAST", "BETWEEN", "CASE",
}  # fmt: skip
_OPERATORS = {
    "OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_COALESCE", "OPERATOR_TRY", "COMPARE_IN",
    "COMPARE_NOT_IN", "ARRAY_EXTRACT", "ARRAY_SLICE", "STRUCT_EXTRACT",
}  # fmt: skip
_ARITHMETIC = {"+", "-", "*", "/", "//", "%", "**", "^"}
FUNCTIONS = _ARITHMETIC | {
    "||", "~~", "!~~", "~~*", "!~~*", "abs", "ceil", "ceiling", "floor", "round", "trunc", "sign", "mod",
    "sqrt", "ln", "log10", "log2", "exp", "pow", "power", "greatest", "least", "lower", "upper", "lcase",
    "ucase", "trim", "ltrim", "rtrim", "length", "strlen", "substr", "substring", "left", "right", "replace",
    "reverse", "lpad", "rpad", "contains", "starts_with", "ends_with", "prefix", "suffix", "concat",
    "concat_ws", "split_part", "strip_accents", "regexp_matches", "regexp_full_match", "regexp_extract",
    "regexp_replace", "nullif", "date_trunc", "datetrunc", "date_part", "datepart", "year", "month", "day",
    "hour", "minute", "second", "quarter", "week", "weekday", "isodow", "dayofweek", "dayofyear", "dayname",
    "monthname", "last_day", "date_diff", "datediff", "strftime", "strptime", "try_strptime", "make_date",
    "epoch", "epoch_ms", "time_bucket", "to_years", "to_months", "to_weeks", "to_days", "to_hours",
    "to_minutes", "to_seconds", "isnan", "isfinite", "isinf", "md5", "sha256", "instr",
    "strpos", "position", "if",
}  # fmt: skip
_TYPES = {
    "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT",
    "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE", "UUID",
    "BOOL", "LOGICAL", "INT1", "INT2", "SHORT", "INT", "INT4", "SIGNED", "INT8", "LONG", "FLOAT4", "REAL", "FLOAT8",
    "NUMERIC", "TEXT", "STRING", "CHAR", "BPCHAR", "DATETIME", "TIMESTAMPTZ",
}  # fmt: skip
_NO_TYPE = "a cast to a type that is not one of those allowed"
_NUMBERS = {"INTEGER", "DECIMAL", "DOUBLE", "FLOAT", "BIGINT", "HUGEINT", "NUMERIC", "NUMBER", "INTEGER_LITERAL"}


_WHAT = "--sql"
_SHAPE = (
    "--sql is SELECT columns FROM 'files' WHERE condition, over one source and row by row. A join, a group, a window, "
    "distinct, limit, order, union or subquery could let one record touch many rows, and is refused"
)
_PLACES = {"query_location", "query_location_length"}
_TABLE = {"type", "table_name", "qualified_name", "alias", *_PLACES}


@dataclass(frozen=True, slots=True)
class RowExpression:
    """An expression over the columns of one row.

    Attributes
    ----------
    text : str
        The SQL, as it was given.
    columns : tuple of str
        The columns it reads.
    computed : str
        The SQL that is computed: ``//`` is a whole number, which of floats it is not for DuckDB.
    of_text : str
        The same where all columns are text: those that it compares, or computes, with a number are read as numbers.
    name : str
        What a column is called that is computed by it.
    """

    text: str
    columns: tuple[str, ...]
    computed: str
    of_text: str
    name: str


def parse_expression(text: str, what: str) -> RowExpression:
    """Read an expression, and refuse one that could look beyond its own row; ``what`` names it in messages."""
    tree = parsed(f"SELECT (\n{text}\n)", what)
    expression = _only_expression(tree)
    if expression is None:
        raise InvalidInput(f"{what} is not one SQL expression. Check its quotes: 'text', and \"a column\".")
    for node in nodes(expression):
        if (wrong := fault(node)) is not None:
            raise InvalidInput(
                f"{what} has {wrong}. It may use the columns of its own row, constants, comparisons, and, or, not, "
                "case, cast and plain functions of them: anything else could let one record touch many."
            )
    names = [node["column_names"][0] for node in nodes(expression) if node["class"] == "COLUMN_REF"]
    if not names:
        raise InvalidInput(f"{what} names no column, so that it is the same for every record.")
    numbers = frozenset(name for node in nodes(expression) for name in _numbers(node))
    whole = _with_whole_quotients(expression)
    computed = text if whole == expression else written(whole, what)
    of_text = written(_with_casts(whole, numbers), what) if numbers else computed
    return RowExpression(text, tuple(dict.fromkeys(names)), computed, of_text, text)


def parsed(text: str, what: str) -> Any:
    """Return DuckDB's own tree of some SQL; ``what`` names it in messages."""

    def serialised() -> Any:
        with connect() as connection:
            return json.loads(connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()[0][0])

    return guarded(serialised, lambda _: SourceError(f"{what} could not be parsed as SQL."))


def written(expression: Any, what: str) -> str:
    """Return the SQL of an expression's tree, by DuckDB's own writer."""
    tree = parsed("SELECT 1", what)
    tree["statements"][0]["node"]["select_list"] = [expression]

    def deserialised() -> str:
        with connect() as connection:
            found = connection.execute("SELECT json_deserialize_sql(?::JSON)", [json.dumps(tree)]).fetchall()
        return str(found[0][0])

    text = guarded(deserialised, lambda _: SourceError(f"{what} has a part that could not be read."))
    return text.removeprefix("SELECT ")


def column(name: str) -> Any:
    """Return the tree of a column."""
    tree = _only_expression(parsed("SELECT (c)", "a column"))
    return {**tree, "column_names": [name]}


def _with_casts(value: Any, numbers: frozenset[str]) -> Any:
    """Return a tree in which columns of these names are read as numbers, null where they are none."""

    def cast(node: Any) -> Any:
        if node.get("class") != "COLUMN_REF" or node["column_names"][0] not in numbers:
            return node
        return {**_only_expression(parsed("SELECT (TRY_CAST(c AS DOUBLE))", "a number")), "child": node}

    return replaced(value, cast)


def _with_whole_quotients(value: Any) -> Any:
    """Return a tree in which every ``//`` has no fraction."""

    def cut(node: Any) -> Any:
        if node.get("class") != "FUNCTION" or node["function_name"] != "//":
            return node
        around = _only_expression(parsed("SELECT (trunc(c))", "a quotient"))
        return {**around, "arguments": [{**around["arguments"][0], "expression": node}]}

    return replaced(value, cut)


def replaced(value: Any, replace: Callable[[Any], Any]) -> Any:
    """Return a tree with every node of it replaced, from the leaves on."""
    if isinstance(value, list):
        return [replaced(each, replace) for each in value]
    if not isinstance(value, dict):
        return value
    return replace({name: replaced(each, replace) for name, each in value.items()})


def _only_expression(tree: Any) -> Any:
    """Return the one expression of a statement that is nothing else, or None."""
    if tree.get("error") or len(tree.get("statements", ())) != 1:
        return None
    node = dict(tree["statements"][0]["node"])
    selected, source, tables = node.pop("select_list", ()), node.pop("from_table", {}), node.pop("cte_map", {})
    plain = node.pop("type", None) == "SELECT_NODE" and node.pop("aggregate_handling", None) == "STANDARD_HANDLING"
    plain = plain and source.get("type") == "EMPTY" and not tables.get("map") and not any(node.values())
    return selected[0] if plain and len(selected) == 1 else None


def nodes(value: Any) -> Iterator[Any]:
    """Go through all nodes of an expression: whatever has a class."""
    if isinstance(value, dict):
        if "class" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from nodes(each)


def fault(node: Any) -> str | None:
    """Say what about a node is not allowed, if anything."""
    match node["class"]:
        case "COLUMN_REF":
            return None if len(node.get("column_names", ())) == 1 else "a name with a dot (quote it if it is a column)"
        case "FUNCTION":
            name = str(node.get("function_name"))
            odd = any(node.get(each) for each in ("distinct", "filter", "schema", "catalog", "export_state"))
            odd = odd or bool((node.get("order_bys") or {}).get("orders"))
            return f"the function {name}, which is not one of those allowed" if odd or name not in FUNCTIONS else None
        case "CAST":
            # Where the type is a node of its own, that one is looked at.
            stated = "TYPE" if "type_expr" in node else (node.get("cast_type") or {}).get("id")
            return None if stated == "TYPE" or _is_allowed(stated) else _NO_TYPE
        case "TYPE":
            odd = any(node.get(each) for each in ("schema", "catalog"))
            return _NO_TYPE if odd or not _is_allowed(node.get("type_name")) else None
        case "OPERATOR" if node["type"] not in _OPERATORS:
            return f"a part of the kind {str(node['type']).lower()}"
        case kind if kind in _CLASSES:
            return None
        case kind:
            return f"a part of the kind {str(kind).lower()}"


def _is_allowed(kind: object) -> bool:
    """Say whether a type may be cast to; its name is as it was written, or DuckDB's own."""
    return str(kind).upper() in _TYPES


def _operands(value: Any) -> Iterator[Any]:
    """Go through the nodes right below a node."""
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict) and "class" in each:
            yield each
        elif isinstance(each, dict | list):
            yield from _operands(each)


def _numbers(node: Any) -> list[str]:
    """Return the columns that a node compares, or computes, with a number."""
    operands = list(_operands(node))
    computes = node["class"] == "FUNCTION" and node["function_name"] in _ARITHMETIC
    compares = str(node["type"]).startswith("COMPARE_") and any(map(_is_number, operands))
    if not (computes or compares):
        return []
    return [each["column_names"][0] for each in operands if each.get("class") == "COLUMN_REF"]


def _is_number(node: Any) -> bool:
    if node.get("class") == "FUNCTION":
        return node["function_name"] in _ARITHMETIC
    kind = node.get("literal", {}).get("kind") or node.get("value", {}).get("type", {}).get("id")
    return str(kind).upper() in _NUMBERS


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


class RowExpressions:
    """A condition and computed columns, applied to one batch after the other; each row by itself.

    Only the columns that an expression reads go through DuckDB, so that the types of the others stay as they are.
    """

    def __init__(self, columns: Columns) -> None:
        self._where, self._computed, self._kept = columns.where, columns.computed, columns.kept
        self._all = (*columns.computed, *([] if columns.where is None else [columns.where]))
        self._read = list(dict.fromkeys(name for each in self._all for name in each.columns))
        self._connection: Any = None

    def apply(self, batch: Any, place: Place) -> Any:
        """Return the rows for which the condition is true, with the computed columns beside the others."""
        if not self._all:
            return batch
        if len({name.casefold() for name in self._read}) < len(self._read):
            raise SourceError(f"{place}: two columns of the SQL differ by case alone. Rename one of them.")
        if not place.text:  # text that is not UTF-8 would break DuckDB, and a damaged array the process
            guarded(lambda: batch.validate(full=True), lambda error: invalid(str(place), error))
        if self._where is not None:  # first, as in SQL: what cannot be computed of another row does not matter
            (true,) = self._made([self._condition(batch, place)], batch, place)
            batch = _without_views(batch).filter(true)
        made = self._made([_sql(each, place) for each in self._computed], batch, place)
        rows = _without_views(batch.select([name for name in batch.schema.names if name in self._kept]))
        for each, column in zip(self._computed, made, strict=True):
            rows = rows.append_column(each.name, column)
        return rows

    def _condition(self, batch: Any, place: Place) -> str:
        """Return the condition as SQL that is true or false."""
        assert self._where is not None
        sql = _sql(self._where, place)
        kind = guarded(lambda: self._source(batch).project(f"{sql} AS c").types[0], lambda e: _unusable(place, e))
        if kind != "BOOLEAN":
            raise SourceError(f"{place}: --where is neither true nor false of a row. Compare, as in distance > 500.")
        # Where it stands in a CASE, the second half of an "and" is computed only where the first is true.
        return f"CASE WHEN {sql} THEN true ELSE false END"

    def _source(self, batch: Any) -> Any:
        if self._connection is None:
            self._connection = connect()
            # Its own choice is the machine's, and keys would be as well.
            self._connection.execute("SET TimeZone = 'UTC'")
            self._connection.execute("SET threads = 1")  # so that rows keep their order
            self._connection.execute("SET enable_external_access = false")
        return self._connection.from_arrow(pa.Table.from_batches([batch.select(self._read)]))

    def _made(self, sql: list[str], batch: Any, place: Place) -> list[Any]:
        """Return one column for each expression."""
        if not sql:
            return []
        named = ", ".join(f"{each} AS c{i}" for i, each in enumerate(sql))
        found = guarded(
            lambda: self._source(batch).project(named).to_arrow_table().combine_chunks(),
            lambda error: _unusable(place, error),
        )
        made = found.to_batches()[0] if found.num_rows else nothing_of(found.schema)
        if made.num_rows != batch.num_rows:
            raise SourceError(f"{place}: the SQL lost some rows; nothing can be built on the rest.")
        return list(made.columns)


def _sql(expression: RowExpression, place: Place) -> str:
    return f"(\n{expression.of_text if place.text else expression.computed}\n)"


def _without_views(batch: Any) -> Any:
    """Return a batch without Arrow's views of text and bytes, of which it selects no rows."""
    kinds = [
        pa.string() if pa.types.is_string_view(kind) else pa.binary() if pa.types.is_binary_view(kind) else kind
        for kind in batch.schema.types
    ]
    if kinds == batch.schema.types:
        return batch
    columns = [each.cast(kind) for each, kind in zip(batch.columns, kinds, strict=True)]
    return pa.record_batch(columns, names=batch.schema.names)


def _unusable(place: Any, error: Exception) -> SourceError:
    if type(error).__name__ in ("BinderException", "CatalogException", "ParserException"):
        return SourceError(
            f"{place}: the SQL does not fit the types of the columns. Cast them, as in cast(ts as timestamp); columns "
            "of CSV and TSV are text."
        )
    return SourceError(
        f"{place}: the SQL could not be computed for some record ({type(error).__name__}). try_cast(… as …) gives null "
        "where a value does not convert."
    )
