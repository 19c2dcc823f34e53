"""The examples in the documentation of Spark's functions, with what Spark computes for them.

`documented_examples.json` holds them for the version of Spark that is pinned: function, expression,
type and values, in UTC; no type where Spark fails. Examples that aggregate, generate rows or read
windows are no scalar expressions and stay out. Written anew, after a change of version, by

    PYTHONPATH=src .venv/bin/python tests/api/documented_examples.py
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from golden_sql import split
from verdicts import printed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = Path(__file__).with_name("documented_examples.json")
_NOT_SCALAR = ("Aggregate", "Generate", "Window", "Join")


def documented_examples() -> list[tuple[str, str, str | None, list[str] | None]]:
    """Function, expression, type and values of each example."""
    return [tuple(entry) for entry in json.loads(FILE.read_text())]


def _texts(spark: SparkSession) -> Iterator[tuple[str, str]]:
    """Each function with each expression in its examples."""
    for (name,) in spark.sql("SHOW FUNCTIONS").collect():
        quoted = name.replace("`", "``")
        lines = spark.sql(f"DESCRIBE FUNCTION EXTENDED `{quoted}`").collect()
        text = "\n".join(line[0] for line in lines)
        for query in re.findall(r"^\s*> SELECT (.*?);$", text, re.MULTILINE | re.DOTALL):
            parts = split(query, {"FROM", "WHERE", "GROUP", "ORDER"})
            if parts is not None and not parts[1]:
                yield from ((name, entry) for entry in parts[0])


def _computed(spark: SparkSession, text: str) -> tuple[str | None, list[str] | None] | None:
    """Type and values; None: it is no scalar expression."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        frame: Any = spark.sql(f"SELECT {text}")
        plan = frame._jdf.queryExecution().analyzed()
        if any(word in plan.toString() for word in _NOT_SCALAR) or not plan.deterministic():
            return None
        of = frame.schema.fields[0].dataType.simpleString()
        column = frame.toArrow().column(0).combine_chunks()
    except (PySparkException, Py4JJavaError, ValueError, OverflowError):
        return None, None
    is_plain = not any(word in of for word in ("interval", "variant", "time("))
    return of, printed(column) if is_plain else [str(value) for value in column.to_pylist()]


def main() -> None:
    """Ask Spark for everything and write the file."""
    from holdfast.driver.session import session

    spark = session("documented examples")
    entries = []
    for name, text in dict.fromkeys(_texts(spark)):
        computed = _computed(spark, text)
        if computed is not None:
            entries.append([name, text, *computed])
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    FILE.write_text(f"[\n{lines}\n]\n")
    spark.stop()


if __name__ == "__main__":
    main()
