"""Scalar expressions of Spark's golden SQL files, each with the type and values that Spark gives.

A golden file is a list of statements with their results. Taken are the select lists that are read
from nothing, from VALUES, or from a view or table that statements before have filled with literals;
each entry of the list is one expression. What aggregates, joins, sorts or nests is no scalar
expression and stays out. Files for another mode than ANSI stay out, too.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast.api.expressions import EvaluationError, compile_expression
from holdfast.errors import HoldfastError

_STATEMENT = re.compile(
    r"-- !query\n(?P<sql>.*?)\n-- !query schema\n(?P<schema>.*?)\n-- !query output\n"
    r"(?P<output>.*?)(?=\n\n\n-- !query\n|\Z)",
    re.DOTALL,
)
_TOKEN = re.compile(
    r"""r?'(?:[^'\\]|\\.)*'|r?"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/|\w+|\s+|.""",
    re.DOTALL | re.IGNORECASE,
)
_CLAUSES = {"FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT"}
_CLAUSES |= {"LATERAL", "WINDOW", "CLUSTER", "DISTRIBUTE", "SORT", "PIVOT", "OFFSET", "MINUS"}
_CLAUSES |= {"QUALIFY", "UNPIVOT", "TABLESAMPLE", "JOIN"}
NO_COLUMNS = pa.RecordBatch.from_pydict({"": pa.nulls(1, pa.int8())})


@dataclass(frozen=True, slots=True)
class Golden:
    """One expression and what Spark makes of it.

    Attributes:
        place: File and number of the statement.
        text: The expression, perhaps with an alias.
        rows: What it reads.
        type: Of its result, as Spark writes it; None if Spark refuses or fails.
        values: As Spark prints them, sorted; None if Spark refuses or fails.
        beside: Other expressions of the same statement, of which one may be why it fails.
    """

    place: str
    text: str
    rows: pa.RecordBatch
    type: str | None
    values: tuple[str, ...] | None
    beside: tuple[str, ...] = ()


def golden_expressions(jar: Path) -> Iterator[Golden]:
    """All scalar expressions of the golden files in Spark's test jar."""
    with zipfile.ZipFile(jar) as files:
        names = sorted(files.namelist())
        for name in names:
            if not name.startswith("sql-tests/results/") or not name.endswith(".sql.out"):
                continue
            short = name.removeprefix("sql-tests/results/").removesuffix(".out")
            source = f"sql-tests/inputs/{short}"
            if short.startswith(("nonansi/", "timestampNTZ/")) or source not in names:
                continue
            if _is_of_another_mode(files.read(source).decode()):
                continue
            yield from _of_file(short, files.read(name).decode())


def _is_of_another_mode(source: str) -> bool:
    settings = re.findall(r"^--(?:SET|CONFIG_DIM\d) *(.*)$", source, re.MULTILINE)
    harmless = ("codegen", "optimizer", "autoBroadcast", "join", "adaptive", "shuffle", "explain")
    harmless += ("optimizeNullAware", "ansi.enabled = true", "maxMetadata", "leafNode", "analyzer")
    return any(
        not any(word in part for word in harmless)
        for setting in settings
        for part in setting.split(",")
    )


def _of_file(name: str, text: str) -> Iterator[Golden]:
    tables: dict[str, pa.RecordBatch] = {}
    is_usual = True
    for number, match in enumerate(_STATEMENT.finditer(text)):
        sql = match["sql"].strip().rstrip(";")
        first = sql.split(None, 1)[0].upper() if sql else ""
        if first == "SET" and "=" in sql:
            is_usual = False  # Another time zone, mode or format from here on.
        elif first == "RESET":
            is_usual = True
        elif first == "USE":
            tables.clear()
        elif first in ("CREATE", "INSERT", "DROP"):
            _define(sql, tables)
        elif first == "SELECT" and is_usual and "|>" not in sql:
            yield from _of_select(f"{name}:{number}", sql, match, tables)


def _of_select(
    place: str, sql: str, match: re.Match[str], tables: dict[str, pa.RecordBatch]
) -> Iterator[Golden]:
    parts = split(sql.split(None, 1)[1], _CLAUSES)
    if parts is None:
        return
    entries, clause, rest = parts
    rows: pa.RecordBatch | None = NO_COLUMNS
    if clause:
        rows = _relation(rest, tables) if clause == "FROM" else None
    if rows is None or any(not entry or entry == "*" for entry in entries):
        return
    if match["schema"] == "struct<>":
        yield Golden(place, entries[0], rows, None, None, tuple(entries[1:]))
        return
    types = _types(match["schema"])
    lines = match["output"].rstrip("\n").split("\n")
    cells = [line.split("\t") for line in lines]
    if len(entries) == 1 and rows.num_rows == 1:
        cells = [[match["output"].rstrip("\n")]]
    if len(types) != len(entries) or len(cells) != rows.num_rows:
        return
    if any(len(row) != len(entries) for row in cells):
        return
    for index, entry in enumerate(entries):
        values = tuple(sorted(row[index] for row in cells))
        yield Golden(place, entry, rows, types[index], values)


def split(text: str, clauses: set[str]) -> tuple[list[str], str, str] | None:
    """Entries between commas, the clause that ends them, and what follows it.

    None: it says more than expressions.
    """
    entries, current, depth = [], "", 0
    tokens = list(_TOKEN.finditer(text))
    for index, token in enumerate(tokens):
        word = token[0]
        if word.startswith(("--", "/*")):
            word = " "
        if word in "([{<" and word in "([{":
            depth += 1
        elif word in ")]}":
            depth -= 1
        upper = word.upper()
        if depth == 0 and upper in clauses and not _is_operand(tokens, index):
            entries.append(current.strip())
            return entries, upper, text[token.end() :]
        if depth == 0 and word == ",":
            entries.append(current.strip())
            current = ""
            continue
        current += word
    entries.append(current.strip())
    if depth or re.match(r"(DISTINCT|ALL)\b", entries[0], re.IGNORECASE):
        return None
    return entries, "", ""


def _is_operand(tokens: Sequence[re.Match[str]], index: int) -> bool:
    """`FROM` of `IS DISTINCT FROM`."""
    before = [token[0].upper() for token in tokens[:index] if not token[0].isspace()]
    return tokens[index][0].upper() == "FROM" and before[-1:] == ["DISTINCT"]


def _types(schema: str) -> list[str]:
    """The types in `struct<name:type,...>`, where a name may hold anything."""
    kinds = r"(?:tinyint|smallint|int|bigint|float|double|decimal\(\d+,\d+\)|string|boolean|date"
    kinds += r"|timestamp|timestamp_ntz|void|binary|interval[a-z ]*|array<.*>|map<.*>|struct<.*>"
    kinds += r"|variant|char\(\d+\)|varchar\(\d+\)|time\(\d+\))"
    inner = schema.strip()[len("struct<") : -1]
    return re.findall(rf".*?:({kinds})(?:,|\Z)", inner, re.DOTALL)


# -- tables -------------------------------------------------------------------------------------


def _define(sql: str, tables: dict[str, pa.RecordBatch]) -> None:
    """Take up a view or table of literals; forget what is dropped or not understood."""
    flat = " ".join(sql.split())
    created = re.match(
        r"(?i)create (?:or replace )?(?:global )?(?:temp|temporary)? ?view (?:if not exists )?"
        r"(\w+)(?: ?\(([^)]*)\))? as (.*)$",
        flat,
    )
    if created:
        batch = _query(created[3], tables)
        if batch is not None and created[2]:
            names = [name.strip() for name in created[2].split(",")]
            batch = batch.rename_columns(names) if len(names) == batch.num_columns else None
        _keep(created[1], batch, tables)
        return
    created = re.match(r"(?i)create table (?:if not exists )?(\w+) ?\((.*)\) using \w+$", flat)
    if created:
        _keep(created[1], _empty(created[2]), tables)
        return
    created = re.match(r"(?i)create table (\w+) using \w+ as (.*)$", flat)
    if created:
        _keep(created[1], _query(created[2], tables), tables)
        return
    inserted = re.match(r"(?i)insert into (?:table )?(\w+) (values.*)$", flat)
    if inserted and inserted[1].lower() in tables:
        table = tables[inserted[1].lower()]
        _keep(inserted[1], _inserted(table, inserted[2]), tables)
        return
    touched = re.match(r"(?i)(?:insert \w+(?: table)?|drop \w+(?: if exists)?) (\w+)", flat)
    if touched:
        tables.pop(touched[1].lower(), None)


def _keep(name: str, batch: pa.RecordBatch | None, tables: dict[str, pa.RecordBatch]) -> None:
    tables.pop(name.lower(), None)
    if batch is not None and batch.num_rows < 200:
        tables[name.lower()] = batch


def _query(sql: str, tables: dict[str, pa.RecordBatch]) -> pa.RecordBatch | None:
    sql = sql.strip()
    while sql.startswith("(") and sql.endswith(")"):
        sql = sql[1:-1].strip()
    if re.match(r"(?i)values", sql):
        return _relation(sql, tables)
    found = re.match(r"(?i)select (.*)$", sql)
    parts = split(found[1], _CLAUSES) if found else None
    if parts is None:
        return None
    entries, clause, rest = parts
    rows: pa.RecordBatch | None = NO_COLUMNS
    if clause:
        rows = _relation(rest, tables) if clause == "FROM" else None
    if rows is None:
        return None
    if entries == ["*"]:
        return rows
    try:
        compiled = [compile_expression(entry, rows.schema) for entry in entries]
        return pa.RecordBatch.from_arrays(
            [c.evaluate(rows) for c in compiled], names=[c.name for c in compiled]
        )
    except (HoldfastError, EvaluationError):
        return None


def _relation(text: str, tables: dict[str, pa.RecordBatch]) -> pa.RecordBatch | None:
    """A table's name, or VALUES with names for its columns."""
    text = text.strip()
    while (
        text.startswith("(") and text.endswith(")") and re.match(r"(?i)\(\s*(values|select)", text)
    ):
        inner = text[1:-1]
        if split(inner, set()) is None:
            break
        text = inner.strip()
    named = re.match(r"(\w+)(?:\s+(?:AS\s+)?\w+)?$", text, re.IGNORECASE)
    if named and not re.match(r"(?i)values", text):
        return tables.get(named[1].lower())
    alias = re.match(r"(?is)\(?\s*values(.*?)\)?\s*(?:as\s+)?(\w+)?\s*\(\s*([\w\s,`]+)\)$", text)
    names: list[str] | None = None
    if alias and alias[2]:
        body, names = alias[1], [n.strip(" `\n") for n in alias[3].split(",")]
        if body.count("(") > body.count(")"):
            body += ")"
    else:
        plain = re.match(r"(?is)values(.*)$", text)
        if not plain:
            return None
        body = plain[1]
    return _literal_rows(body, names, None)


def _literal_rows(
    body: str, names: list[str] | None, schema: pa.Schema | None
) -> pa.RecordBatch | None:
    parts = split(body, {"AS"})
    if parts is None or parts[1]:
        return None
    rows = []
    for entry in parts[0]:
        inner = entry[1:-1] if entry.startswith("(") and entry.endswith(")") else entry
        cells = split(inner, set())
        if cells is None:
            return None
        rows.append(cells[0])
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        return None
    names = names or [f"col{index + 1}" for index in range(width)]
    if len(names) != width:
        return None
    columns = []
    for index in range(width):
        of = None if schema is None else schema.field(index).type
        column = _literal_column([row[index] for row in rows], of)
        if column is None:
            return None
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=names)


def _literal_column(texts: list[str], of: pa.DataType | None) -> pa.Array | None:
    """One value per text; their types must agree, or be cast by an insert."""
    try:
        scalars = []
        for text in texts:
            if text.upper() == "NULL":
                scalars.append(None)
                continue
            [value] = compile_expression(text, NO_COLUMNS.schema).evaluate(NO_COLUMNS)
            scalars.append(value)
        kinds = {scalar.type for scalar in scalars if scalar is not None}
        if of is None:
            if len(kinds) != 1:
                return None
            (of,) = kinds
        return pa.array(
            [None if s is None else (s if s.type == of else s.cast(of)).as_py() for s in scalars],
            of,
        )
    except (HoldfastError, EvaluationError, pa.ArrowException):
        return None


def _inserted(table: pa.RecordBatch, values: str) -> pa.RecordBatch | None:
    body = re.sub(r"(?i)^values", "", values)
    rows = _literal_rows(body, table.schema.names, table.schema)
    if rows is None:
        return None
    return pa.Table.from_batches([table, rows]).combine_chunks().to_batches()[0]


def _empty(columns: str) -> pa.RecordBatch | None:
    parts = split(columns, set())
    if parts is None:
        return None
    fields = []
    for entry in parts[0]:
        name, _, of = entry.partition(" ")
        try:
            fields.append((name, compile_expression(f"CAST(NULL AS {of})", NO_COLUMNS.schema).type))
        except HoldfastError:
            return None
    schema = pa.schema(fields)
    return pa.RecordBatch.from_arrays([pa.nulls(0, f.type) for f in schema], schema=schema)
