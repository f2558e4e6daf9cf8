"""ETL of RIoTBench: parse, range filter, Bloom filter, interpolation, join, annotate; then a table and published SenML.

An invalid value becomes empty and passes on, so each message in gives one row out. Rows are split by field for the filters and
the interpolation, and joined by the number of their message.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from agiledart import (
    BroadcastOperator,
    Context,
    Joined,
    KeyedOperator,
    Sink,
    Source,
    Topology,
    csv,
    lines,
    null,
    plugin,
)
from agiledart_examples.riotbench.bloom import BloomFilter
from agiledart_examples.riotbench.messages import FieldValue, FieldValues, RecentValues, numbered_messages
from agiledart_examples.riotbench.workloads import CITY, FIT, TAXI, StreamSettings


class Metadata(NamedTuple):
    """Line `id:annotation,annotation` of the metadata."""

    id: str
    annotations: list[str]


class JoinedMessage(NamedTuple):
    """SensorMessage whose fields have passed the filters."""

    number: int
    at_ms: int
    id: str
    values: list[float | None]


class CityRow(NamedTuple):
    """Row of the table of CITY."""

    message: int
    ms: int
    id: str
    temperature: float | None
    humidity: float | None
    light: float | None
    dust: float | None
    airquality_raw: float | None
    location: str | None
    type: str | None


class TaxiRow(NamedTuple):
    """Row of the table of TAXI."""

    message: int
    ms: int
    id: str
    trip_time_in_secs: float | None
    trip_distance: float | None
    fare_amount: float | None
    surcharge: float | None
    mta_tax: float | None
    tip_amount: float | None
    tolls_amount: float | None
    total_amount: float | None
    company: str | None
    driver: str | None
    city: str | None


class FitRow(NamedTuple):
    """Row of the table of FIT."""

    message: int
    ms: int
    id: str
    acc_chest_x: float | None
    acc_chest_y: float | None
    acc_chest_z: float | None
    ecg_lead_1: float | None
    ecg_lead_2: float | None
    acc_ankle_x: float | None
    acc_ankle_y: float | None
    acc_ankle_z: float | None
    acc_arm_x: float | None
    acc_arm_y: float | None
    acc_arm_z: float | None
    age: str | None
    gender: str | None


def metadata_of(line: str) -> Metadata:
    """Return a line of the metadata; raises ValueError for another line."""
    sensor, colon, rest = line.partition(":")
    if not colon:
        raise ValueError("a line of the metadata is id:annotation,annotation")
    return Metadata(sensor, rest.split(","))


class RangeFilter:
    """Replacement of a value outside its field's range by None; both limits are valid."""

    def __init__(self, workload: StreamSettings) -> None:
        self._ranges = dict(workload.ranges)

    def __call__(self, row: FieldValue) -> FieldValue:
        limits = self._ranges.get(row.field)
        if limits is None or row.value is None or limits[0] <= row.value <= limits[1]:
            return row
        return row._replace(value=None)


@dataclass
class Nothing:
    """State of a step that keeps none."""


class KnownSensors(BroadcastOperator[tuple[str, str], FieldValue, Nothing, FieldValue, Metadata, BloomFilter]):
    """Replacement of the values of sensors without metadata by None; the filter holds the ids of the metadata."""

    def initial(self, key: tuple[str, str]) -> Nothing:
        return Nothing()

    def initial_shared(self) -> BloomFilter:
        return BloomFilter()

    def on_broadcast(self, record: Metadata, shared: BloomFilter) -> None:
        shared.add(record.id)

    def on_record(self, key: tuple[str, str], record: FieldValue, state: Nothing, context: Context[FieldValue]) -> None:
        context.emit(record if record.id in context.shared else record._replace(value=None))
        context.forget()


class Interpolation(KeyedOperator[tuple[str, str], FieldValue, RecentValues, FieldValue]):
    """Mean of the last valid values of the same sensor and field in place of a missing one; 0 when there is none."""

    def __init__(self, window: int) -> None:
        self._window = window

    def initial(self, key: tuple[str, str]) -> RecentValues:
        return RecentValues()

    def on_record(
        self, key: tuple[str, str], record: FieldValue, state: RecentValues, context: Context[FieldValue]
    ) -> None:
        recent = state.values
        if record.value is None:
            record = record._replace(value=sum(recent) / len(recent) if recent else 0.0)
        else:
            recent.append(record.value)
            del recent[: -self._window]
        context.emit(record)


@dataclass
class JoinedFields:
    """Fields of a message that have arrived."""

    values: dict[str, float | None] = field(default_factory=dict)


class MessageJoin(KeyedOperator[int, FieldValue, JoinedFields, JoinedMessage]):
    """All fields of a message, put together when the last one arrives."""

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._fields = fields

    def initial(self, key: int) -> JoinedFields:
        return JoinedFields()

    def on_record(self, key: int, record: FieldValue, state: JoinedFields, context: Context[JoinedMessage]) -> None:
        state.values[record.field] = record.value
        if len(state.values) == len(self._fields):
            values = [state.values[name] for name in self._fields]
            context.emit(JoinedMessage(record.number, record.at_ms, record.id, values))
            context.forget()


def sensor_and_field(row: FieldValue) -> tuple[str, str]:
    """Return the key of the interpolation."""
    return (row.id, row.field)


def message_number(row: FieldValue) -> int:
    """Return the key of the join."""
    return row.number


def sensor_of_message(row: JoinedMessage) -> str:
    """Return the key of the annotations."""
    return row.id


def sensor_of_metadata(row: Metadata) -> str:
    """Return the key of a line of the metadata."""
    return row.id


class TableRow:
    """Row of the table, of the type of its workload: number, time, id, values, annotations (None without metadata)."""

    def __init__(self, row_type: Any, annotations: int) -> None:
        self._row_type, self._annotations = row_type, annotations

    def __call__(self, pair: Joined[str, JoinedMessage, Metadata | None]) -> Any:
        number, at_ms, sensor, values = pair.left
        texts: list[str | None] = [] if pair.right is None else list(pair.right.annotations)
        texts = (texts + [None] * self._annotations)[: self._annotations]
        return self._row_type(number, at_ms, sensor, *values, *texts)


class SenmlText:
    """Row of the table as SenML in the form of the messages."""

    def __init__(self, workload: StreamSettings) -> None:
        self._workload = workload

    def __call__(self, row: Any) -> str:
        workload = self._workload
        entries: list[dict[str, str]] = [{"u": "string", "n": workload.id_field, "sv": row.id}]
        for name, value in zip(row._fields[3:], row[3:], strict=True):
            if value is None:
                continue
            if name in workload.fields:
                entries.append({"v": repr(value), "u": workload.units.get(name, "per"), "n": name})
            else:
                entries.append({"u": "string", "n": name, "sv": value})
        return msgspec.json.encode({"e": entries, "bt": row.ms}).decode()


def _etl(
    workload: StreamSettings, row_type: Any, messages: Source[str], metadata: str, table: Any, published: Any
) -> Topology:
    topology = Topology(f"etl-{workload.name}")
    known = plugin("example", stream=f"{workload.name}-metadata") if metadata == "" else lines(str(metadata))
    annotations = topology.reference("metadata", known, rows=str).map(metadata_of, "metadata-parse", on_error="skip")
    observations = (
        numbered_messages(topology, messages, workload)
        .flat_map(FieldValues(workload.fields), "observations", returns=FieldValue)
        .map(RangeFilter(workload), "range-filter", returns=FieldValue)
    )
    if workload.bloom:
        by_field = observations.key_by(sensor_and_field)
        observations = by_field.connect(annotations).stateful("bloom-filter", KnownSensors())
    if workload.interpolation:
        interpolation = Interpolation(workload.interpolation)
        observations = observations.key_by(sensor_and_field).stateful("interpolation", interpolation)
    rows = (
        observations.key_by(message_number)
        .stateful("join", MessageJoin(workload.fields))
        .key_by(sensor_of_message)
        .lookup("annotate", annotations.key_by(sensor_of_metadata), how="left")
        .map(TableRow(row_type, len(row_type._fields) - 3 - len(workload.fields)), "table-row", returns=row_type)
    )
    rows.sink("table", table)
    rows.map(SenmlText(workload), "csv-to-senml", returns=str).sink("published", published)
    return topology


def etl_city(
    messages: Source[str] = plugin("example", stream="city"),  # noqa: B008  a connector is a value
    metadata: str = "",
    table: Sink[CityRow] = csv("etl-city.csv"),  # noqa: B008  as above
    published: Sink[str] = null(),  # noqa: B008  as above
) -> Topology:
    """Build ETL over sensors of cities.

    Args:
        messages: lines `milliseconds,SenML`.
        metadata: path of the lines `id:location,type`, on the node that reads them; empty: those of the generator.
        table: sink of number, time, id, values and annotations.
        published: sink of the same as SenML.
    """
    return _etl(CITY, CityRow, messages, metadata, table, published)


def etl_taxi(
    messages: Source[str] = plugin("example", stream="taxi"),  # noqa: B008  a connector is a value
    metadata: str = "",
    table: Sink[TaxiRow] = csv("etl-taxi.csv"),  # noqa: B008  as above
    published: Sink[str] = null(),  # noqa: B008  as above
) -> Topology:
    """Build ETL over taxi trips, without interpolation; arguments as for `etl_city`, annotations company, driver, city."""
    return _etl(TAXI, TaxiRow, messages, metadata, table, published)


def etl_fit(
    messages: Source[str] = plugin("example", stream="fit"),  # noqa: B008  a connector is a value
    metadata: str = "",
    table: Sink[FitRow] = csv("etl-fit.csv"),  # noqa: B008  as above
    published: Sink[str] = null(),  # noqa: B008  as above
) -> Topology:
    """Build ETL over worn sensors, without Bloom filter; arguments as for `etl_city`, annotations age and gender."""
    return _etl(FIT, FitRow, messages, metadata, table, published)
