"""Spark's own pages name nodes by dataflow, unit and instance, and lead to the view of a query.

Spark shows a job's description, with links to paths of its own server alone. So the link names a
path there, and while a view is served Spark sends whoever asks for that path on to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark import SparkContext

    from holdfast.core.model.ids import NodeId


def view_path(location: str) -> str:
    """Where Spark's server leads on to the view of the query at a checkpoint location."""
    return f"/holdfast/{hashlib.sha256(location.encode()).hexdigest()[:16]}"


def description(dataflow: str, node: NodeId, path: str) -> str:
    """Of the job of a node; with an empty `path` it has no link."""
    unit, _, number = node.rpartition("[")
    text = f"Holdfast {dataflow}: unit {unit}, instance {number.rstrip(']')}"
    return f'{escape(text)} <a href="{escape(path)}">view</a>' if path else text


def has_pages(context: SparkContext) -> bool:
    """Whether Spark serves pages at all."""
    return bool(getattr(context, "uiWebUrl", None))


def lead(context: SparkContext, path: str, url: str) -> Callable[[], None]:
    """Have Spark's server send whoever asks for `path` to `url`; call the answer to undo that."""
    if not has_pages(context):
        return lambda: None
    jvm: Any = context._jvm
    jetty = jvm.org.apache.spark.ui.JettyUtils
    handler = jetty.createRedirectHandler(path, url, *_left_open(jetty))
    jsc: Any = context._jsc
    pages = jsc.sc().ui().get()
    pages.attachHandler(handler)

    def undo() -> None:
        if context._jsc is not None and not jsc.sc().isStopped():
            pages.detachHandler(handler)

    return undo


def _left_open(jetty: Any) -> list[Any]:
    """What Spark takes for the other arguments; Spark 4.3 has one more than 4.1."""
    found: list[Any] = []
    for number in (3, 4, 5, 6):
        try:
            found.append(getattr(jetty, f"createRedirectHandler$default${number}")())
        except Py4JError:
            break
    return found
