"""Taps: a bounded sample of the rows that leave a step, for somebody who looks on.

Nothing is looked at while nobody asks. A tap must be asked for again every `LEASE_SECONDS`, or it is taken off. It
takes at most `MAX_ROWS_PER_SAMPLE` rows of each instance between two reports, spread over the first batches, and turns them
into JSON at once: user code may change a row later. The job is never held up: what does not fit is not sampled.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from agiledart_dataflow.data.batch import Order
from agiledart_executor.instances.running_instance import RunningInstance
from agiledart_executor.wire.agent_messages import InstanceName, SampledRow, TapSample

LEASE_SECONDS = 5.0
"""How long a tap stays open after somebody asked for it."""

MAX_ROWS_PER_SAMPLE = 25
"""Rows of one instance in one report; reports go twice a second."""

MAX_ROW_BYTES = 2_048
"""Longest JSON text of a row; of a longer one only its beginning is shown, as a string."""

MAX_TAPS = 16
"""Steps of one executor that may be looked at at one time."""

RowType = Callable[[int, str], Any]
"""(stage, step) → the type of the rows that leave the step."""


class TapPoint:
    """Looks at what leaves one step of one instance."""

    def __init__(self, instance: InstanceName, row_type: Any, wall_ns: Callable[[], int]) -> None:
        self.instance = instance
        self.passed = 0
        self._last_reported = -1
        self._plain, self._wall_ns = _plain_of(row_type), wall_ns
        self._rows: list[SampledRow] = []

    def __call__(self, rows: list[Any], order: Order) -> None:
        """Take some of these rows, evenly spread, as long as there is room."""
        count = len(rows)
        self.passed += count
        room = MAX_ROWS_PER_SAMPLE - len(self._rows)
        if room > 0:
            for at in range(0, count, max(1, -(-count // room))):
                self._rows.append(SampledRow(_time_at(order, at), self._text(rows[at])))

    def _text(self, row: Any) -> str:
        try:
            text = msgspec.json.encode(self._plain(row, self._wall_ns()), enc_hook=str)
        except Exception as error:  # noqa: BLE001  a row may hold anything; a look at it must not harm the job
            return msgspec.json.encode(f"cannot be shown: {type(error).__name__}").decode()
        if len(text) > MAX_ROW_BYTES:
            return msgspec.json.encode(text[: MAX_ROW_BYTES // 2].decode("utf-8", "ignore") + " …").decode()
        return text.decode()

    def taken(self, step: str) -> TapSample | None:
        """What was seen since the last time; None when nothing passed."""
        if self.passed == self._last_reported:
            return None
        self._last_reported = self.passed
        rows, self._rows = tuple(self._rows), []
        return TapSample(step, self.instance, self.passed, rows)


def _time_at(order: Order, at: int) -> int | None:
    """The event time of a row; None where it does not travel."""
    if order is None:
        return None
    one = order[at]
    return one[0] if type(one) is tuple else int(one)


def _plain_of(row_type: Any) -> Callable[[Any, int], Any]:
    """How rows of a type become what a JSON encoder takes."""
    from agiledart_connectors.codecs.rendering import json_of  # only when somebody looks

    try:
        return json_of(row_type)
    except Exception:  # noqa: BLE001  user code's types may hide anything; the encoder then shows what it can
        return lambda row, _: row


class StepTaps:
    """All taps of one executor.

    Args:
        steps: stage → names of its steps.
        row_type: the type of the rows that leave a step.
        wall_ns: wall time, for the age of `ReadTime` fields.
    """

    def __init__(self, steps: Callable[[int], Sequence[str]], row_type: RowType, wall_ns: Callable[[], int]) -> None:
        self._steps, self._row_type, self._wall_ns = steps, row_type, wall_ns
        self._until: dict[str, float] = {}
        self._points: dict[tuple[str, int, int], TapPoint] = {}

    def open(self, step: str, now: float) -> None:
        """Look at a step from now on, or go on with it; nothing when too many are looked at."""
        if step in self._until or len(self._until) < MAX_TAPS:
            self._until[step] = now + LEASE_SECONDS

    def take_samples(self, instances: Iterable[RunningInstance], now: float) -> list[TapSample]:
        """What was seen since the last turn. Also puts taps on new instances and takes off those that nobody reads."""
        if not self._until and not self._points:
            return []
        told = [sampled for (step, _, _), point in self._points.items() if (sampled := point.taken(step))]
        self._until = {step: until for step, until in self._until.items() if until > now}
        for running in instances:
            self._put_on(running)
        return told

    def _put_on(self, running: RunningInstance) -> None:
        """Make the onlookers of one instance those that are wanted."""
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
