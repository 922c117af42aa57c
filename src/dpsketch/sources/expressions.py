"""SQL over the columns of one row: conditions, and keys that are computed. DuckDB parses and computes them.

*Privacy.* A guarantee holds for the rows of the source: adding or removing a row must add or remove what that row alone
becomes. So an expression may look at the columns of its own row, and at nothing else. It is parsed, and every node of
it must be of a kind on a list below, with functions from a list: no subquery, window, aggregate or set operation, no
function that depends on the time, on chance or on files. What is on no list is refused. Types come from the source's
schema or from the expression, never from values: CSV and TSV have no schema, so that their columns are text, and
numbers where the expression compares or computes with a number; a field that is no number is then missing. A row for
which a condition is not true, a null included, is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

from dpsketch.errors import InvalidInput, SourceError
from dpsketch.sources.conditions import PlainCondition, plain_condition
from dpsketch.sources.engine import connect
from dpsketch.sources.failures import guarded
from dpsketch.sources.text import Piece, nothing_of

__all__ = ["RowExpression", "RowExpressions", "parse_expression", "parsed", "written"]

_ROWS_AT_ONCE = 1 << 20  # to ask DuckDB costs as much as some ten thousand rows
_ROWS_HANDED_ON = 1 << 17
_BYTES_AT_ONCE = 1 << 24

_CLASSES = {
    "COLUMN_REF", "CONSTANT", "COMPARISON", "CONJUNCTION", "OPERATOR", "FUNCTION", "CAST", "BETWEEN", "CASE",
}  # fmt: skip
_OPERATORS = {
    "OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_COALESCE", "OPERATOR_TRY", "COMPARE_IN",
    "COMPARE_NOT_IN", "ARRAY_EXTRACT", "ARRAY_SLICE", "STRUCT_EXTRACT",
}  # fmt: skip
_ARITHMETIC = {"+", "-", "*", "/", "//", "%", "**", "^"}
_FUNCTIONS = _ARITHMETIC | {
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
    plain : PlainCondition or None
        The same where it is a condition that needs no database if all columns are text.
    """

    text: str
    columns: tuple[str, ...]
    computed: str
    of_text: str
    name: str
    plain: PlainCondition | None = None


def parse_expression(text: str, what: str) -> RowExpression:
    """Read an expression, and refuse one that could look beyond its own row; ``what`` names it in messages."""
    tree = parsed(f"SELECT (\n{text}\n)", what)
    expression = _only_expression(tree)
    if expression is None:
        raise InvalidInput(f"{what} is not one SQL expression. Check its quotes: 'text', and \"a column\".")
    for node in _nodes(expression):
        if (fault := _fault(node)) is not None:
            raise InvalidInput(
                f"{what} has {fault}. It may use the columns of its own row, constants, comparisons, and, or, not, "
                "case, cast and plain functions of them: anything else could let one record touch many."
            )
    names = [node["column_names"][0] for node in _nodes(expression) if node["class"] == "COLUMN_REF"]
    if not names:
        raise InvalidInput(f"{what} names no column, so that it is the same for every record.")
    numbers = frozenset(name for node in _nodes(expression) for name in _numbers(node))
    whole = _with_whole_quotients(expression)
    computed = text if whole == expression else written(whole, what)
    of_text = written(_with_casts(whole, numbers), what) if numbers else computed
    plain = plain_condition(expression, numbers)
    return RowExpression(text, tuple(dict.fromkeys(names)), computed, of_text, text, plain)


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


def _with_casts(value: Any, numbers: frozenset[str]) -> Any:
    """Return a tree in which columns of these names are read as numbers, null where they are none."""

    def cast(node: Any) -> Any:
        if node.get("class") != "COLUMN_REF" or node["column_names"][0] not in numbers:
            return node
        return {**_only_expression(parsed("SELECT (TRY_CAST(c AS DOUBLE))", "a number")), "child": node}

    return _replaced(value, cast)


def _with_whole_quotients(value: Any) -> Any:
    """Return a tree in which every ``//`` has no fraction."""

    def cut(node: Any) -> Any:
        if node.get("class") != "FUNCTION" or node["function_name"] != "//":
            return node
        around = _only_expression(parsed("SELECT (trunc(c))", "a quotient"))
        return {**around, "arguments": [{**around["arguments"][0], "expression": node}]}

    return _replaced(value, cut)


def _replaced(value: Any, replace: Callable[[Any], Any]) -> Any:
    """Return a tree with every node of it replaced, from the leaves on."""
    if isinstance(value, list):
        return [_replaced(each, replace) for each in value]
    if not isinstance(value, dict):
        return value
    return replace({name: _replaced(each, replace) for name, each in value.items()})


def _only_expression(tree: Any) -> Any:
    """Return the one expression of a statement that is nothing else, or None."""
    if tree.get("error") or len(tree.get("statements", ())) != 1:
        return None
    node = dict(tree["statements"][0]["node"])
    selected, source, tables = node.pop("select_list", ()), node.pop("from_table", {}), node.pop("cte_map", {})
    plain = node.pop("type", None) == "SELECT_NODE" and node.pop("aggregate_handling", None) == "STANDARD_HANDLING"
    plain = plain and source.get("type") == "EMPTY" and not tables.get("map") and not any(node.values())
    return selected[0] if plain and len(selected) == 1 else None


def _nodes(value: Any) -> Iterator[Any]:
    """Go through all nodes of an expression: whatever has a class."""
    if isinstance(value, dict):
        if "class" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _nodes(each)


def _fault(node: Any) -> str | None:
    """Say what about a node is not allowed, if anything."""
    match node["class"]:
        case "COLUMN_REF":
            return None if len(node.get("column_names", ())) == 1 else "a name with a dot (quote it if it is a column)"
        case "FUNCTION":
            name = str(node.get("function_name"))
            odd = any(node.get(each) for each in ("distinct", "filter", "schema", "catalog", "export_state"))
            odd = odd or bool((node.get("order_bys") or {}).get("orders"))
            return f"the function {name}, which is not one of those allowed" if odd or name not in _FUNCTIONS else None
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


class RowExpressions:
    """A condition and computed columns, applied to a few batches at a time; each row by itself.

    Parameters
    ----------
    where : RowExpression or None
        The condition.
    computed : tuple of RowExpression
        The columns that are computed.
    kept : collection of str
        The columns wanted of the result; those that only an expression reads are not carried on.
    """

    def __init__(self, where: RowExpression | None, computed: tuple[RowExpression, ...], kept: Collection[str]) -> None:
        self._where, self._computed = where, computed
        self._all = (*computed, *([] if where is None else [where]))
        self._kept = kept
        self._connection: Any = None
        self._fitting: set[Any] = set()

    def applied(self, pieces: Iterable[Piece], place: Any) -> Iterator[Piece]:
        """Yield the rows for which the condition is true, with the computed columns beside the others."""
        if not self._all:
            yield from pieces
            return
        read = list(dict.fromkeys(name for each in self._all for name in each.columns))
        if len({name.casefold() for name in read}) < len(read):
            raise SourceError(f"{place}: two columns of the SQL differ by case alone. Rename one of them.")
        left = iter(pieces)
        if not (place.typed or self._computed or self._where is None or self._where.plain is None):
            odd: list[Piece] = []
            for batches, done in _gathered(_narrowed(left, self._where.plain, self._kept, odd), _ROWS_HANDED_ON):
                yield _one_batch(pa.Table.from_batches(batches)), done
            left = chain(odd, left)
        for batches, done in _gathered(left, _ROWS_AT_ONCE):
            yield self._rows(batches, read, place), done

    def _rows(self, batches: list[Any], read: list[str], place: Any) -> Any:
        if self._connection is None:
            self._connection = guarded(_row_by_row, lambda error: _unusable(place, error))
        table = pa.Table.from_batches([batch.select(read) for batch in batches])
        result = guarded(lambda: self._computed_of(table, place), lambda error: _unusable(place, error))
        if result.num_rows != table.num_rows:
            raise SourceError(f"{place}: the SQL lost some rows; nothing can be built on the rest.")
        names = [name for name in batches[0].schema.names if name in self._kept]
        found, start = [], 0
        for batch in batches:
            made = result.slice(start, batch.num_rows).combine_chunks()
            start += batch.num_rows
            part = batch.select(names)
            for i, each in enumerate(self._computed):
                part = part.append_column(each.name, _one_array(made.column(i)))
            found.append(part if self._where is None else part.filter(_one_array(made.column(len(self._computed)))))
        return _one_batch(pa.Table.from_batches(found))

    def _computed_of(self, table: Any, place: Any) -> Any:
        source = self._connection.from_arrow(table)
        sql = [f"(\n{each.computed if place.typed else each.of_text}\n)" for each in self._all]
        if self._where is not None:
            if table.schema not in self._fitting and source.project(f"{sql[-1]} AS c").types[0] != "BOOLEAN":
                raise SourceError(
                    f"{place}: --where is neither true nor false of a row. Compare, as in distance > 500."
                )
            self._fitting.add(table.schema)
            # Where it stands in a CASE, the second half of an "and" is computed only where the first is true.
            sql[-1] = f"CASE WHEN {sql[-1]} THEN true ELSE false END"
        return source.project(", ".join(f"{each} AS c{i}" for i, each in enumerate(sql))).to_arrow_table()


def _narrowed(
    pieces: Iterator[Piece], condition: PlainCondition, names: Collection[str], odd: list[Piece]
) -> Iterator[Piece]:
    """Yield the rows wanted until a batch comes that the database has to look at; that one is put into ``odd``."""
    for batch, done in pieces:
        rows = condition.rows(batch, names)
        if rows is None:
            odd.append((batch, done))
            return
        yield rows, done


def _gathered(pieces: Iterable[Piece], rows: int) -> Iterator[tuple[list[Any], int]]:
    """Yield a few batches at a time, until they have so many rows or are large."""
    held: list[Any] = []
    for batch, done in pieces:
        held.append(batch)
        if sum(each.num_rows for each in held) >= rows or sum(each.nbytes for each in held) >= _BYTES_AT_ONCE:
            yield held, done
            held = []
    if held:
        yield held, done


def _row_by_row() -> Any:
    """Open a database that reads no file, works in UTC, and on one thread, so that rows keep their order."""
    connection = connect()
    connection.execute("SET TimeZone = 'UTC'")  # its own choice is the machine's, and keys would be as well
    connection.execute("SET threads = 1")
    connection.execute("SET enable_external_access = false")
    return connection


def _one_batch(table: Any) -> Any:
    whole = table.combine_chunks()
    batches = whole.to_batches()
    return batches[0] if batches else nothing_of(whole.schema)


def _one_array(column: Any) -> Any:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


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
