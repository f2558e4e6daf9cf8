"""Figures of the last ten minutes by application, and nodes that have gone in this time."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

HISTORY_SECONDS = 600.0
MAX_POINTS = 600
MAX_APPLICATIONS = 256


class MeshHistory:
    """Bounded history of one mesh. Times are monotonic seconds of the caller."""

    def __init__(self) -> None:
        self._points: dict[str, deque[dict[str, float | None]]] = {}
        self._nodes: dict[str, tuple[float, Mapping[str, Any]]] = {}

    def add(self, application: str, at: float, figures: Mapping[str, float | None]) -> None:
        """Add one point of an application: rates and latencies; None where they are unknown."""
        points = self._points.pop(application, None)
        if points is None:
            points = deque(maxlen=MAX_POINTS)
            while len(self._points) >= MAX_APPLICATIONS:
                del self._points[next(iter(self._points))]
        self._points[application] = points
        points.append({"at": at, **figures})

    def points(self, application: str, now: float) -> list[dict[str, float | None]]:
        """Return the points of the last ten minutes; `age_s` stands for their times."""
        recent = []
        for point in self._points.get(application, ()):
            age = now - (point["at"] or 0.0)
            if age <= HISTORY_SECONDS:
                recent.append(
                    {"age_s": round(age, 1), **{name: value for name, value in point.items() if name != "at"}}
                )
        return recent

    def with_gone_nodes(self, rows: Sequence[Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
        """Return the rows of nodes; `gone_s` is the age of the last row of a node that is no longer there, else None."""
        for row in rows:
            self._nodes[str(row["node_id"])] = (now, row)
        self._nodes = {key: seen for key, seen in self._nodes.items() if now - seen[0] <= HISTORY_SECONDS}
        present = {str(row["node_id"]) for row in rows}
        gone = [{**row, "gone_s": round(now - at, 1)} for key, (at, row) in self._nodes.items() if key not in present]
        return [{**row, "gone_s": None} for row in rows] + gone
