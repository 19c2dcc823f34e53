"""Operators bind as in Spark's own parser, and what it refuses is refused here."""

import itertools
import random
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from random_sql import RandomSql

from holdfast.api.expressions.parser import Call, Case, Cast, Interval, Operation, Tree, parse
from holdfast.errors import DataflowError, UnsupportedError

pytestmark = pytest.mark.slow

_COLUMNS = ["a", "b", "c", "d"]
_INFIX = ("+", "-", "||", "*", "/", "%", "DIV", "=", "==", "<>", "!=", "<", "<=", "!>", ">", ">=")
_INFIX += ("!<", "<=>", "&", "|", "^", "<<", ">>", ">>>", "AND", "OR", "LIKE", "NOT LIKE", "RLIKE")
_INFIX += ("IS DISTINCT FROM", "IS NOT DISTINCT FROM", "IN", "BETWEEN b AND", "NOT BETWEEN b AND")
_AROUND = (
    "-{}",
    "+{}",
    "~{}",
    "NOT {}",
    "! {}",
    "{} IS NULL",
    "{} IS NOT TRUE",
    "{}::INT",
    "- - {}",
)
_AROUND += (
    "{} IN (1, 2)",
    "{} NOT IN (1)",
    "CASE {} WHEN 1 THEN 2 END",
    "f({})",
    "{} IS UNKNOWN",
)


def spelled(tree: Tree) -> str:
    """A tree with parentheses around everything."""
    match tree:
        case Operation(symbol="()", operands=(inner,)):
            return spelled(inner)
        case Operation(symbol="NOT", operands=(Operation() as inner,)) if inner.text == tree.text:
            operands = [spelled(operand) for operand in inner.operands]
            return f"({_operation(inner.symbol, operands, 'NOT ')})"
        case Operation(symbol=symbol, operands=operands):
            return f"({_operation(symbol, [spelled(operand) for operand in operands])})"
        case Call(name=name, arguments=arguments):
            return f"{name}({', '.join(spelled(each) for each in arguments)})"
        case Cast():
            numbers = f"({','.join(map(str, tree.to.numbers))})" if tree.to.numbers else ""
            verb = "TRY_CAST" if tree.is_try else "CAST"
            return f"{verb}({spelled(tree.operand)} AS {tree.to.name}{numbers})"
        case Case():
            subject = "" if tree.subject is None else spelled(tree.subject)
            whens = "".join(f" WHEN {spelled(w)} THEN {spelled(t)}" for w, t in tree.branches)
            default = "" if tree.default is None else f" ELSE {spelled(tree.default)}"
            return f"CASE {subject}{whens}{default} END"
        case Interval():
            return f"({tree.text})"
    return f"({tree.text})"


def _operation(symbol: str, parts: list[str], negation: str = "") -> str:
    if symbol.startswith("unary "):
        return f"{symbol[-1]} {parts[0]}"
    if symbol == "NOT":
        return f"NOT {parts[0]}"
    if symbol == "BETWEEN":
        return f"{parts[0]} {negation}BETWEEN {parts[1]} AND {parts[2]}"
    if symbol == "IN":
        return f"{parts[0]} {negation}IN ({', '.join(parts[1:])})"
    if symbol == "IS DISTINCT":
        return f"{parts[0]} IS {negation}DISTINCT FROM {parts[1]}"
    if symbol.startswith("IS "):
        return f"{parts[0]} IS {negation}{symbol[3:]}"
    return f" {negation}{symbol} ".join(parts)


def differences(spark: SparkSession, texts: list[str]) -> list[str]:
    """Texts that Spark parses to something else than what was understood here."""
    parser = spark._jsparkSession.sessionState().sqlParser()  # type: ignore[attr-defined]
    found, understood = [], []
    for text in texts:
        try:
            tree, alias = parse(text)
        except UnsupportedError:
            continue
        except DataflowError as error:
            if "write parentheses" not in str(error) and _parsed(parser, [text]) is not None:
                found.append(f"{text}: {error}")
            continue
        if alias is None:
            understood.append((text, spelled(tree)))
    groups = [understood[start : start + 50] for start in range(0, len(understood), 50)]
    while groups:
        group = groups.pop()
        theirs = _parsed(parser, [text for text, _ in group])
        ours = _parsed(parser, [whole for _, whole in group])
        if theirs is not None and ours is not None and theirs.equals(ours):
            continue
        if len(group) == 1:
            found.append(f"{group[0]}, Spark {theirs and theirs.toString()}")
        else:
            groups += [group[: len(group) // 2], group[len(group) // 2 :]]
    return found


def _parsed(parser: Any, texts: list[str]) -> Any:
    """One call of all; None if Spark refuses one of them."""
    try:
        return parser.parseExpression(f"f({', '.join(texts)})")
    except PySparkException:
        return None


def test_every_pair_of_operators_binds_as_in_spark(spark: SparkSession) -> None:
    pairs = itertools.product(_INFIX, repeat=2)
    texts = [f"a {one} c {two} d".replace("IN c", "IN (c)") for one, two in pairs]
    texts += [
        f"{around.format('a')} {infix} {other}".replace("IN b", "IN (b)")
        for around, infix in itertools.product(_AROUND, _INFIX)
        for other in ("b", "-b", "- 1")
    ]
    texts += [one.format(two.format("a")) for one, two in itertools.product(_AROUND, repeat=2)]
    assert differences(spark, texts) == []


def test_random_expressions_are_parsed_as_in_spark(spark: SparkSession) -> None:
    draw = RandomSql(random.Random(7), _COLUMNS)
    texts = [draw.expression(4) for _ in range(500)]
    # Spark's grammar takes what stands before these for a whole query.
    texts = [text for text in texts if "| left(" not in text and "| right(" not in text]
    assert differences(spark, texts) == []
