"""Taps: bounded samples of the rows that leave a step, for a watching user.

No row is sampled without a request. A tap is removed unless it is requested again within `LEASE_SECONDS`. It takes at most
`MAX_ROWS_PER_SAMPLE` rows of each instance between two reports, spread over the first batches. It turns them into JSON at once,
because user code may change a row later. A tap never delays the job: rows beyond the limit are not sampled.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from agiledart_dataflow.data.batch import Order
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.wire.agent_messages import InstanceName, SampledRow, TapSample

LEASE_SECONDS = 5.0
"""Seconds for which a tap stays open after a request."""

MAX_ROWS_PER_SAMPLE = 25
"""Rows of one instance in one report; reports go twice a second."""

MAX_ROW_BYTES = 2_048
"""Longest JSON text of a row; a longer row is cut and shown as a string."""

MAX_TAPS = 16
"""Steps of one executor that may be tapped at the same time."""

RowType = Callable[[int, str], Any]
"""(stage, step) → the type of the rows that leave the step."""


class TapPoint:
    """Tap on the rows that leave one step of one instance."""

    def __init__(self, instance: InstanceName, row_type: Any, wall_ns: Callable[[], int]) -> None:
        self.instance = instance
        self.passed = 0
        self._last_reported = -1
        self._plain, self._wall_ns = _plain_of(row_type), wall_ns
        self._rows: list[SampledRow] = []

    def __call__(self, rows: list[Any], order: Order) -> None:
        """Sample some of these rows, evenly spread, up to the limit of the report."""
        count = len(rows)
        self.passed += count
        free = MAX_ROWS_PER_SAMPLE - len(self._rows)
        if free > 0:
            for at in range(0, count, max(1, -(-count // free))):
                self._rows.append(SampledRow(_time_at(order, at), self._text(rows[at])))

    def _text(self, row: Any) -> str:
        try:
            text = msgspec.json.encode(self._plain(row, self._wall_ns()), enc_hook=str)
        except Exception as error:  # noqa: BLE001  a row may hold anything, and sampling it must not harm the job
            return msgspec.json.encode(f"cannot be shown: {type(error).__name__}").decode()
        if len(text) > MAX_ROW_BYTES:
            return msgspec.json.encode(text[: MAX_ROW_BYTES // 2].decode("utf-8", "ignore") + " …").decode()
        return text.decode()

    def taken(self, step: str) -> TapSample | None:
        """Return the sample since the last call; None when no row passed."""
        if self.passed == self._last_reported:
            return None
        self._last_reported = self.passed
        rows, self._rows = tuple(self._rows), []
        return TapSample(step, self.instance, self.passed, rows)


def _time_at(order: Order, at: int) -> int | None:
    """Return the event time of a row in milliseconds; None where event times do not travel."""
    if order is None:
        return None
    position = order[at]
    return position[0] if type(position) is tuple else int(position)


def _plain_of(row_type: Any) -> Callable[[Any, int], Any]:
    """Return a function that turns rows of a type into values for a JSON encoder."""
    from agiledart_connectors.codecs.rendering import json_of  # imported only when a tap opens

    try:
        return json_of(row_type)
    except Exception:  # noqa: BLE001  types of user code may raise anything; the encoder then shows what it can
        return lambda row, _: row


class StepTaps:
    """Taps of one executor.

    Args:
        steps: stage → names of its steps.
        row_type: returns the type of the rows that leave a step.
        wall_ns: wall clock, for the age of `ReadTime` fields.
    """

    def __init__(self, steps: Callable[[int], Sequence[str]], row_type: RowType, wall_ns: Callable[[], int]) -> None:
        self._steps, self._row_type, self._wall_ns = steps, row_type, wall_ns
        self._until: dict[str, float] = {}
        self._points: dict[tuple[str, int, int], TapPoint] = {}

    def open(self, step: str, now: float) -> None:
        """Open the tap of a step or extend its lease; do nothing when too many taps are open."""
        if step in self._until or len(self._until) < MAX_TAPS:
            self._until[step] = now + LEASE_SECONDS

    def take_samples(self, instances: Iterable[RunningInstance], now: float) -> list[TapSample]:
        """Return the samples since the last call; open taps on new instances and remove taps whose lease has expired."""
        if not self._until and not self._points:
            return []
        samples = [sampled for (step, _, _), point in self._points.items() if (sampled := point.taken(step))]
        self._until = {step: until for step, until in self._until.items() if until > now}
        for running in instances:
            self._put_on(running)
        return samples

    def _put_on(self, running: RunningInstance) -> None:
        """Give an instance the taps that are open on its steps."""
        wanted: dict[str, TapPoint] = {}
        changed = False
        for step in self._steps(running.stage):
            key = (step, running.stage, running.index)
            if step not in self._until:
                changed |= self._points.pop(key, None) is not None
                continue
            if key not in self._points:
                changed = True
                name = running.instance_name
                self._points[key] = TapPoint(name, self._row_type(running.stage, step), self._wall_ns)
            wanted[step] = self._points[key]
        if changed:
            part = running.instance if running.instance is not None else running.source
            if part is not None:
                part.show(wanted)
