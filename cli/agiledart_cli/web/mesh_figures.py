"""Figures of one mesh as the page shows them: nodes, applications with rates, and all about the applications on screen."""

import time
from collections.abc import Mapping, Set
from dataclasses import asdict
from typing import Any

from agiledart_cli.top.top_sample import LIVE_STATES, Sample, compare
from agiledart_cli.web.mesh_history import MeshHistory
from agiledart_control.control_client import ControlClient
from agiledart_control.errors import CommandRefusedError
from agiledart_node.wire.commands import ListApplications, Nodes, Status

NODES_SECONDS = 2.0
"""Time between two looks at the nodes: each one is a round of questions to all of them."""

MAX_OTHERS = 3
"""Applications, beside those on screen, whose figures are requested in one sample; the others take turns."""

_NO_NODES: Mapping[str, Any] = {"nodes": [], "known": 0}


class MeshFigures:
    """The newest figures of a mesh, and its history. One thread uses it at a time."""

    def __init__(self) -> None:
        self._history = MeshHistory()
        self._samples: dict[str, Sample] = {}
        self._lines: dict[str, dict[str, Any]] = {}
        self._nodes = _NO_NODES
        self._nodes_at = float("-inf")
        self._turn = 0

    def take(self, client: ControlClient, on_screen: Set[str], now: float) -> dict[str, Any]:
        """Ask the agent. Return the content of one event.

        Args:
            on_screen: applications that viewers look at.
            now: monotonic seconds.
        """
        if now - self._nodes_at >= NODES_SECONDS:
            self._nodes, self._nodes_at = client.ask(Nodes()), now
        rows = {row["name"]: row for row in client.ask(ListApplications())["applications"]}
        self._samples = {name: sample for name, sample in self._samples.items() if name in rows}
        self._lines = {name: line for name, line in self._lines.items() if name in rows}
        details = {}
        for name in (*(on_screen & rows.keys()), *self._next_others(rows, on_screen)):
            try:
                status = client.ask(Status(name))
            except CommandRefusedError:
                continue  # it was forgotten meanwhile
            steps = self._compare(rows[name], status, now)
            if name in on_screen:
                details[name] = {**status, "steps": steps, "points": self._history.points(name, now)}
        warnings = [self._nodes.get("isolation_warning", ""), *self._nodes.get("clocks", ())]
        return {
            "away_s": None,
            "at_ms": time.time_ns() // 1_000_000,
            "known": self._nodes["known"],
            "warnings": [text for text in warnings if text],
            "nodes": self._history.with_gone_nodes(self._nodes["nodes"], now),
            "applications": [self._with_rates(row) for row in rows.values()],
            "details": details,
        }

    def _next_others(self, rows: Mapping[str, Mapping[str, Any]], on_screen: Set[str]) -> list[str]:
        """Return the running applications whose turn it is."""
        others = [name for name, row in rows.items() if row["state"] in LIVE_STATES and name not in on_screen]
        if not others:
            return []
        begin = self._turn % len(others)
        self._turn = begin + MAX_OTHERS
        return (others + others)[begin : begin + min(MAX_OTHERS, len(others))]

    def _compare(self, row: Mapping[str, Any], status: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
        """Compare a status with the previous one of its application. Return the figures of its steps."""
        name = row["name"]
        sample = Sample(now, self._nodes, [row], {name: status})
        snapshot = compare(self._samples.get(name), sample, time.time())
        self._samples[name] = sample
        line = asdict(snapshot.applications[0])
        self._lines[name] = line
        if row["state"] in LIVE_STATES:
            latencies = (status["summary"].get("latency_ms") or {}).values() if status["summary"].get("paced") else ()
            p50 = max((figures["p50"] for figures in latencies), default=None)
            self._history.add(
                name, now, {"in": line["in_rate"], "out": line["out_rate"], "p50": p50, "p99": line["p99_ms"]}
            )
        return [asdict(step) for step in snapshot.steps]

    def _with_rates(self, row: Mapping[str, Any]) -> dict[str, Any]:
        line = self._lines.get(row["name"])
        is_same = line is not None and line["version"] == row["version"]
        return {**row, "figures": line if is_same else None}
