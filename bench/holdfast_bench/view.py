"""What the view of a dataflow of 1,000 units costs in Chromium, and what looking costs a node.

The browser gets ten updates a second. The feed is simulated: pages of a made-up query, of which
every rate and count changes each time, made before the browser starts. So the figures are those of
the browser alone: all of its processes, in shares of a core. What a node spends is measured in a
real query (node_share.py), and there how long it takes until the page shows that it was killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import statistics
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from holdfast.errors import UnsupportedError
from holdfast.view.changes import calmed, difference
from holdfast.view.model import Facts, page_of
from holdfast.view.server import asset_routes
from holdfast_bench import node_share
from holdfast_bench.reporter import machine_of, table, write_page
from holdfast_bench.running import cpu_s_of
from holdfast_bench.shown_query import plan, report
from holdfast_bench.spine import machine

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from starlette.requests import Request

    from holdfast.driver.query import Query

UPDATES_PER_S: Final = 10
SHARE_TARGET: Final = 0.2
PAINT_TARGET_MS: Final = 1_000
SEEN_TARGET_MS: Final = 1_000
PLACES: Final = ("flow", "units", "checkpoints")
_FRAMES: Final = 20
_SETTLE_S: Final = 4.0
_BETWEEN_KILLS_S: Final = 1.0
_INTRODUCTION: Final = """# The view of a large dataflow

`holdfast bench view` made this page. [The live view](../view.md) explains what is looked at.

"""


@dataclass(frozen=True)
class Sizes:
    """How much is measured.

    Attributes:
        units: Of the dataflow.
        seconds: For how long the browser is watched.
        kills: How many are to be seen on a page.
    """

    units: int
    seconds: float
    kills: int


FULL = Sizes(1_000, 30.0, 20)
QUICK = Sizes(1_000, 8.0, 3)


def run(sizes: Sizes, say: Callable[[str], None]) -> dict[str, Any]:
    """Show a simulated query in Chromium, at three places of the page."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise UnsupportedError("there is no Chromium; on Debian: apt-get install -y chromium")
    found: dict[str, Any] = {"machine": machine(), "units": sizes.units, "places": []}
    feed = _Feed(sizes.units)
    found["update_kb"] = round(statistics.mean(map(len, feed.changes)) / 1_000)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport={"width": 1_280, "height": 900})
            page.goto(feed.url)
            page.wait_for_selector("#graph .box[data-level]", timeout=60_000)
            paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            found["painted_ms"] = round(page.evaluate(paint))
            for place in PLACES:
                page.evaluate("id => document.getElementById(id).scrollIntoView()", place)
                time.sleep(_SETTLE_S)  # What scrolling costs does not count.
                found["places"].append({"place": place, **_watched(feed, sizes.seconds)})
                say(f"{place}: {found['places'][-1]}")
            page.close()
            feed.stop()

            def kill(query: Query, url: str) -> None:
                page = browser.new_page(viewport={"width": 390, "height": 844})
                found["kills"] = _kills_seen(page, query, url, sizes.kills)
                page.close()

            found["node"] = node_share.measure(sizes.seconds, kill)
            browser.close()
    finally:
        feed.stop()
    say(f"node: {found['node']}, kills: {found['kills']}")
    return found


def _kills_seen(page: Page, query: Query, url: str, kills: int) -> list[dict[str, int]]:
    """Of each kill, after how many ms the page shows the failure, and its end."""
    page.goto(url)
    page.wait_for_selector('#state[data-word="running"]')
    count = "([kind, n]) => document.querySelectorAll(`#timeline [data-kind=${kind}]`).length >= n"
    found = []
    for number in range(1, kills + 1):
        (node,) = query.nodes
        pid, began_s = query.pid(node), time.monotonic()
        os.kill(pid, signal.SIGKILL)
        page.wait_for_function(count, arg=["failure", number])
        seen_ms = round((time.monotonic() - began_s) * 1e3)
        page.wait_for_function(count, arg=["recovery", number])
        back_ms = round((time.monotonic() - began_s) * 1e3)
        found.append({"failure_seen_ms": seen_ms, "recovery_seen_ms": back_ms})
        time.sleep(_BETWEEN_KILLS_S)  # So that each is one by itself.
    return found


def _watched(feed: _Feed, seconds: float) -> dict[str, float]:
    """What the browser's processes compute meanwhile, and how many updates they got."""
    began_s, cpu_s, sent = time.monotonic(), _browser_cpu_s(), feed.sent
    time.sleep(seconds)  # The time that is measured.
    took_s = time.monotonic() - began_s
    return {
        "updates_per_s": round((feed.sent - sent) / took_s, 1),
        "share": round((_browser_cpu_s() - cpu_s) / took_s, 3),
    }


def _browser_cpu_s() -> float:
    """Of all Chromium processes that descend from this one."""
    return sum(cpu_s_of(pid) or 0.0 for pid, name in _descendants() if "chrom" in name)


def _descendants() -> Iterator[tuple[int, str]]:
    """Their ids and names."""
    of_parent: dict[int, list[tuple[int, str]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = path.read_text().rpartition(") ")
        except OSError:
            continue  # It has ended meanwhile.
        number, _, name = head.partition(" (")
        of_parent.setdefault(int(rest.split()[1]), []).append((int(number), name))
    left = [os.getpid()]
    for parent in left:
        for pid, name in of_parent.get(parent, ()):
            left.append(pid)
            yield pid, name


class _Feed:
    """Serves the page and the simulated changes, at a loopback address, until it is stopped.

    Attributes:
        url: Of the page.
        changes: What travels, again and again.
        sent: How many changes have been sent.
    """

    def __init__(self, units: int) -> None:
        placed = plan(units)
        reports = (report(units, tick) for tick in range(_FRAMES))
        pages = [page_of(Facts("/data/bids", placed, r, r["madeUnixS"], True)) for r in reports]
        for n in range(1, _FRAMES):  # A whole one every two seconds, as the server has it.
            pages[n] = calmed(pages[n - 1], pages[n])
        self._first = _event(pages[0])
        self.changes = [
            _event(difference(pages[n], pages[(n + 1) % _FRAMES])) for n in range(_FRAMES)
        ]
        self.sent = 0
        app = Starlette(routes=[*asset_routes(), Route("/events", self._events)])
        listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        settings = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(settings)
        self._thread = threading.Thread(target=self._server.run, args=([listening],), daemon=True)
        self._thread.start()

    async def _events(self, _: Request) -> Response:
        return StreamingResponse(self._all(), media_type="text/event-stream")

    async def _all(self) -> AsyncIterator[str]:
        yield self._first
        due_s = time.monotonic()
        while not self._server.should_exit:
            due_s += 1 / UPDATES_PER_S
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            yield self.changes[self.sent % _FRAMES]
            self.sent += 1

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, separators=(',', ':'))}\n\n"


def is_met(results: dict[str, Any]) -> bool:
    """Whether all targets are reached."""
    shares = [place["share"] for place in results["places"]]
    return bool(
        max(shares) < SHARE_TARGET
        and results["painted_ms"] < PAINT_TARGET_MS
        and results["node"]["share"] < node_share.TARGET
        and max(kill["failure_seen_ms"] for kill in results["kills"]) < SEEN_TARGET_MS
    )


def write(results: dict[str, Any], folder: Path) -> Path:
    """Write view.md and view.json."""
    return write_page("view", results, render(results), folder)


def render(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    given = machine_of(results)
    rows = [(p["place"], p["updates_per_s"], f"{p['share']:.3f}") for p in results["places"]]
    return "".join(
        [
            _INTRODUCTION,
            f"Machine: {given}.\n\n",
            f"A simulated dataflow of {results['units']:,} units, of which every rate and count "
            f"changes with each update; an update has {results['update_kb']} kB. First meaningful "
            f"paint: {results['painted_ms']} ms; the target is {PAINT_TARGET_MS:,} ms.\n\n",
            table(("part of the page that is looked at", "updates per second", "cores"), rows),
            f"\nThe target is {SHARE_TARGET} of a core, all processes of the browser together.\n",
            _of_a_node(results["node"]),
            _of_kills(results["kills"]),
        ]
    )


def _of_a_node(found: dict[str, Any]) -> str:
    """What looking costs those who are looked at."""
    rows = [
        ("reports to the driver, from which metrics and the view come", found["reporting_share"]),
        ("measuring rates, sizes and costs for them", found["measuring_share"]),
        ("together", found["share"]),
    ]
    return "".join(
        [
            "\n## A node's share\n\n",
            f"A node reads {found['rate']:,} tuples a second, counts in windows and writes "
            "results. A page is open in front of it, and metrics are scraped every second.\n\n",
            table(("a node's calls", "cores"), [(what, f"{share:.5f}") for what, share in rows]),
            f"\nThe target is {node_share.TARGET} of a core.\n",
        ]
    )


def _of_kills(kills: list[dict[str, int]]) -> str:
    """How soon somebody who looks sees what has failed."""
    rows = [
        (what, round(statistics.median(taken)), max(taken))
        for what, name in (("failed", "failure_seen_ms"), ("is back", "recovery_seen_ms"))
        for taken in [[kill[name] for kill in kills]]
    ]
    return "".join(
        [
            "\n## A kill, seen\n\n",
            f"The same node is killed {len(kills)} times. From SIGKILL until the page in Chromium "
            "says so:\n\n",
            table(("the page says that the node", "median, ms", "slowest, ms"), rows),
            f"\nThe target is {SEEN_TARGET_MS:,} ms for the failure.\n",
        ]
    )
