"""Response schemas about output of applications: lines of their logs, and samples of a step's rows."""

from typing import Any

from agiledart_node.wire.response import Response


class LogRow(Response, frozen=True):
    """One line of user code. `number` counts the lines of the application at that node."""

    node: str
    number: int
    at_ms: int
    step: str
    text: str


class LogsResponse(Response, frozen=True):
    """Response to `logs`: lines in the order of their times. Send `after` back to continue after the last line."""

    name: str
    state: str
    lines: list[LogRow]
    after: dict[str, int]
    silent_nodes: list[str]


class TapSampleRow(Response, frozen=True):
    """A row that left the step.

    `instance`: at `node`; `time_ms`: event time, null where it does not travel with the rows; `row`: its fields, or a text when it
    is too long.
    """

    node: str
    instance: int
    time_ms: int | None
    row: Any


class TapResponse(Response, frozen=True):
    """Response to `tap`: a sample, each node's rows in order. Send `after` back to continue after the last row.

    Args:
        passed: rows that left the step on the answering nodes since the tap was opened there.
    """

    name: str
    version: int
    state: str
    step: str
    rows: list[TapSampleRow]
    passed: int
    after: dict[str, int]
    silent_nodes: list[str]
