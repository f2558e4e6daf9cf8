"""Stages of running applications for the policies `btu` and `threshold`: time of a row, rows that wait, nodes of instances."""

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from agiledart_cli.output import plural
from agiledart_control.control_client import ControlClient
from agiledart_control.errors import CommandRefusedError
from agiledart_node.wire.commands import NO_ROOM, ExplainScaling, Status
from agiledart_provisioning.gate.gate_messages import StageSeen
from agiledart_provisioning.provisioning_settings import DURATIONS_KEPT

MAX_APPLICATIONS = 50
"""Applications that are looked at; a look asks each of them twice."""

MOST_MS = 86_400_000.0
"""Time of a row in a stage that takes no row while some wait."""

UNDECLARED_FACTOR = 2.0
"""Without a declared service level a row may take this multiple of its shortest measured time of work."""


class StageObserver:
    """Observer of stages over several looks: the last times of a row, and the shortest time of work."""

    def __init__(self) -> None:
        self._durations: dict[str, deque[float]] = {}
        self._shortest: dict[str, float] = {}

    def look(
        self, client: ControlClient, applications: list[str], *, scales: bool
    ) -> tuple[tuple[StageSeen, ...], list[str]]:
        """Ask about running applications; one that has just ended is left out.

        Returns:
            The stages with limits where the gate scales, else none; and the reasons why stages lack nodes for more instances.
        """
        seen: list[StageSeen] = []
        lacking: list[str] = []
        for name in applications[:MAX_APPLICATIONS]:
            try:
                scaling = client.ask(ExplainScaling(name))
                lacking += without_room(name, scaling)
                if scales:
                    seen += self.of_application(name, scaling, client.ask(Status(name)))
            except CommandRefusedError:
                continue
        names = {stage.name for stage in seen}
        self._durations = {name: times for name, times in self._durations.items() if name in names}
        self._shortest = {name: work_ms for name, work_ms in self._shortest.items() if name in names}
        return tuple(seen), lacking

    def of_application(self, name: str, scaling: Mapping[str, Any], status: Mapping[str, Any]) -> list[StageSeen]:
        """Return the stages of one application that have limits, from `explain scaling` and `status`."""
        instances = {stage["name"]: stage["instances"] for stage in status["stages"]}
        agreed = {row["step"]: row["slo_ms"] for row in status["summary"].get("service_levels", ())}
        return [
            self._stage(f"{name}/{row['name']}", row, instances.get(row["name"], []), _slo_ms(row["name"], agreed))
            for row in scaling["stages"]
            if row["scales"] and row["measures"]["backlog"] is not None  # unknown is not empty
        ]

    def _stage(
        self, name: str, row: Mapping[str, Any], instances: list[Mapping[str, Any]], slo_ms: float | None
    ) -> StageSeen:
        measures = row["measures"]
        rate, queue = measures["true_rate"], float(measures["backlog"] or 0)
        duration: float | None = None
        durations = self._durations.setdefault(name, deque(maxlen=DURATIONS_KEPT))
        if rate:
            work_ms = 1000 / rate
            self._shortest[name] = min(work_ms, self._shortest.get(name, work_ms))
            served = rate * row["instances"] * (measures["busy"] or 0.0)
            # The time of work, and that of the rows that wait before (Little).
            duration = min(MOST_MS, work_ms + (queue / served * 1000 if served else (MOST_MS if queue else 0.0)))
            durations.append(duration)
        low, high = row["limits"]
        return StageSeen(
            name,
            slo_ms or UNDECLARED_FACTOR * self._shortest.get(name, MOST_MS),
            duration,
            tuple(durations),
            queue,
            row["instances"],
            low,
            high,
            dict(Counter(instance["node"] for instance in instances)),
            row["keeps_number"],
        )


def not_looked_at(applications: int) -> str:
    """Return the words about running applications beyond those that are looked at; empty: there are none."""
    more = applications - MAX_APPLICATIONS
    return (
        f"stages of {plural(more, 'application')} are not looked at: {applications} run, the limit is {MAX_APPLICATIONS}"
        if more > 0
        else ""
    )


def without_room(application: str, scaling: Mapping[str, Any]) -> list[str]:
    """Return the reasons why stages that scale by themselves wait for a node with room."""
    return [
        f"{application}/{row['name']} wants {row['wanted']} instances, has {row['instances']}, and no node has room"
        for row in scaling["stages"]
        if row["waits_for"].startswith(NO_ROOM) and (row["wanted"] or 0) > row["instances"]
    ]


def _slo_ms(stage: str, agreed: Mapping[str, float]) -> float | None:
    """Return the sum of the declared times of a stage's steps; None: none is declared."""
    declared = [agreed[step] for step in stage.split("+") if step in agreed]
    return sum(declared) if declared else None
