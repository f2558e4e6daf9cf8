"""Messages of RIoTBench: lines `milliseconds,{"e":[…],"bt":…}`, SenML as the benchmark writes it (not that of RFC 8428)."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from agiledart import Context, KeyedOperator, Source, Stream, Topology
from agiledart_examples.riotbench.workloads import StreamSettings

_DECODER = msgspec.json.Decoder()


class SensorMessage(NamedTuple):
    """Parsed message.

    Attributes:
        at_ms: the number before the comma.
        id: of its sensor.
        values: observed values in the order of the workload's fields; None where the message has none.
    """

    at_ms: int
    id: str
    values: list[float | None]


class NumberedMessage(NamedTuple):
    """SensorMessage with its number in the order of the source, from 0."""

    number: int
    message: SensorMessage


class FieldValue(NamedTuple):
    """Value of one field of a message; None when it is missing or invalid."""

    number: int
    at_ms: int
    id: str
    field: str
    value: float | None


class SenmlParse:
    """Parser of a workload's messages; raises ValueError for a line that is none."""

    def __init__(self, workload: StreamSettings) -> None:
        self._fields = workload.fields
        self._id_field = workload.id_field

    def __call__(self, line: str) -> SensorMessage:
        at_ms, comma, text = line.partition(",")
        if not comma:
            raise ValueError("a message is a line milliseconds,SenML")
        try:
            entries: list[dict[str, Any]] = _DECODER.decode(text)["e"]
            named = {entry["n"]: entry.get("v", entry.get("sv")) for entry in entries}
            sensor = named[self._id_field]
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the SenML is incomplete: {error!r}") from None
        return SensorMessage(int(at_ms), str(sensor), [_number(named.get(name)) for name in self._fields])


def _number(value: Any) -> float | None:
    """Return a value that SenML writes as a text; None for an empty one and for NaN."""
    if value is None or value == "":
        return None
    number = float(value)
    return number if number == number else None


@dataclass
class NextNumber:
    """Number of the next message."""

    number: int = 0


class MessageNumbers(KeyedOperator[int, SensorMessage, NextNumber, NumberedMessage]):
    """Numbers of messages in the order of the source; all messages have one key."""

    def initial(self, key: int) -> NextNumber:
        return NextNumber()

    def on_record(self, key: int, record: SensorMessage, state: NextNumber, context: Context[NumberedMessage]) -> None:
        context.emit(NumberedMessage(state.number, record))
        state.number += 1


def same_key(message: SensorMessage) -> int:
    """Return the key of all messages."""
    return 0


def numbered_messages(topology: Topology, messages: Source[str], workload: StreamSettings) -> Stream[NumberedMessage]:
    """Read, parse and number the messages. Lines that are no messages are counted as skipped and get no number."""
    return (
        topology.source("messages", messages, rows=str)
        .map(SenmlParse(workload), "senml-parse", returns=SensorMessage, on_error="skip")
        .key_by(same_key)
        .stateful("message-numbers", MessageNumbers())
    )


class FieldValues:
    """Split of a message into one row for each field."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._fields = fields

    def __call__(self, row: NumberedMessage) -> list[FieldValue]:
        at_ms, sensor, values = row.message
        return [
            FieldValue(row.number, at_ms, sensor, name, value) for name, value in zip(self._fields, values, strict=True)
        ]


@dataclass
class RecentValues:
    """Last values of a sensor's field."""

    values: list[float] = field(default_factory=list)
