"""The tokens of Spark SQL's expressions, and the values of its strings. [Spark, SqlBaseLexer]"""

from __future__ import annotations

import re
from dataclasses import dataclass

from holdfast.errors import DataflowError

_TOKENS = re.compile(
    r"""
    (?P<space>[ \t\n\f\r\v\u00a0\u1680\u2000-\u200a\u2028\u202f\u205f\u3000]+
        |--(?:\\\n|[^\r\n])*|/\*(?!\+)(?:(?!/\*).)*?\*/)
    |(?P<raw>[rR](?:'[^']*'|"[^"]*"))
    |(?P<string>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<number>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?(?:[bB][dD]|[dDfF])?(?![\w])
        |\d+(?:(?:[eE][+-]?\d+)?(?:[bB][dD]|[dDfF])|[eE][+-]?\d+|[lLsSyY])?(?![\w]))
    |(?P<word>\w+)
    |(?P<symbol><=>|>>>|<<|>>|<>|!=|!>|!<|<=|>=|==|\|\||::|=>|->|[-+*/%=<>!~&^|.,()\[\]:?])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    "%": "\\%",
    "_": "\\_",
}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7]{2})|(.))", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text.

    Attributes:
        kind: `string`, `quoted`, `number`, `word`, `symbol`, or `end` behind the last.
        text: A string's value, a quoted name's name, a word or symbol in capitals.
        start: Where it begins in the text.
        stop: Where it ends, exclusive.
    """

    kind: str
    text: str
    start: int
    stop: int


def tokens_of(sql: str) -> list[Token]:
    """All tokens. Raises `DataflowError` at a character that begins none."""
    tokens: list[Token] = []
    position = 0
    while position < len(sql):
        match = _TOKENS.match(sql, position)
        if match is None:
            rest = sql[position : position + 20]
            raise DataflowError(f"{sql!r} is no Spark SQL expression: it breaks at {rest!r}")
        kind, text = str(match.lastgroup), match[0]
        if kind == "raw":
            kind, text = "string", text[2:-1]
        elif kind == "string":
            text = unescaped(text[1:-1].replace(text[0] * 2, text[0]))
        elif kind == "quoted":
            text = text[1:-1].replace("``", "`")
        elif kind != "space":
            text = text.upper()
        if kind != "space":
            tokens.append(Token(kind, text, position, match.end()))
        position = match.end()
    tokens.append(Token("end", "", len(sql), len(sql)))
    return tokens


def unescaped(text: str) -> str:
    """What stands between the quotes of a string literal, with its backslashes resolved."""

    def one(match: re.Match[str]) -> str:
        short, long, octal, other = match.groups()
        if short or long:
            number = int(short or long, 16)
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise DataflowError(f"{match[0]} is no character")
            return chr(number)
        return chr(int(octal, 8)) if octal else _ESCAPES.get(other, other)

    return _ESCAPE.sub(one, text)
