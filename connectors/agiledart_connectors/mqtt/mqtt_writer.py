"""Sink `mqtt://HOST:PORT/TOPIC`: each row becomes a message; `alarms/{room}` takes a level of the topic from a field.

Up to `MAX_ROWS_WAITING` rows wait while the broker is away; then the sink takes no more and pressure travels upstream. After a
reconnect the sink sends again what the broker has not acknowledged (QoS 1, 2), so a message may arrive twice.
With MQTT 5 the row's name goes along as the user property `row-id` (`row_ids`), and is the same then.
"""

import re
import threading
import time
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from paho.mqtt.properties import Properties

from agiledart_connectors.codecs.payloads import payload_renderer
from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_connectors.mqtt.broker_address import MAX_TOPIC_BYTES, BrokerAddress, broker_address
from agiledart_connectors.mqtt.broker_link import BrokerLink
from agiledart_connectors.options import flag
from agiledart_connectors.rejections import RejectsRows, RowRefusedError, rendered_rows
from agiledart_connectors.remote.row_ids import NAME, RowIds, ids_of
from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.data.schema import fields_of
from agiledart_dataflow.plan.connector_abilities import DeliveryCallback
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import AgileDartError, ConfigurationError, OperationFailed

if TYPE_CHECKING:
    from agiledart_connectors.sink_origin import SinkOrigin

MAX_ROWS_WAITING: Final = 5_000
MAX_IN_FLIGHT: Final = 20
"""Bound of unacknowledged messages: the bound of brokers in their default configuration."""

END_SECONDS: Final = 5.0
"""Time that the end of the input waits for a broker's next acknowledgement while some are missing."""

MAX_PAYLOAD_BYTES: Final = 268_435_455
"""Longest payload of a message (MQTT 5, section 2.1.4)."""

_PAUSE: Final = 0.005
_USER_PROPERTY: Final = b"\x26" + len(NAME).to_bytes(2, "big") + NAME.encode()
_FIELD: Final = re.compile(r"\{(\w+)\}")
_WILDCARDS: Final = str.maketrans({"+": "_", "#": "_", "/": "_", "\0": "_"})
"""Characters that a field's value may not bring into a topic, because it fills one level."""


class RowName(Properties):
    """The properties of a message that has nothing but a row's name, packed here: paho's own takes many times as long."""

    def __init__(self, name: str) -> None:
        value = name.encode()
        body = b"".join((_USER_PROPERTY, len(value).to_bytes(2, "big"), value))
        length = len(body)
        before = bytes((length,)) if length < 128 else bytes((length & 127 | 128, length >> 7))
        object.__setattr__(self, "packed", before + body)  # paho's own takes only names that it knows

    def pack(self) -> bytes:
        """Return the property as on the wire, with the length before it."""
        packed: bytes = self.__dict__["packed"]
        return packed


class MqttWriter(RejectsRows):
    """Publishes rows.

    Raises:
        OperationFailed: at the end messages are left that no broker has taken.
    """

    def __init__(
        self, connector: Connector, address: BrokerAddress, row_type: Any, times: LatencyRecorder, ids: RowIds
    ) -> None:
        super().__init__()
        self._address, self._ids = address, ids
        self._names_rows = address.version == 5 and address.qos > 0
        self._times = times
        self._retain = flag(connector, "retain")
        self._topic = _topic_of(connector, address.topic, row_type)
        self._render = payload_renderer(connector, row_type)
        self._notices: list[str] = []
        self._published = self._acknowledged = 0  # the latter by the link's thread
        self._queue: deque[tuple[str, bytes, RowName | None]] = deque()
        self._publishing = threading.Lock()
        self._taken_in = 0
        self._waiters: deque[tuple[int, DeliveryCallback]] = deque()  # message number up to which a caller waits
        self._waiting = threading.Lock()
        self._closed = False
        self._failure: AgileDartError | None = None
        will = None
        if connector.option("will"):
            will = (
                connector.option("will_topic") or address.topic,
                connector.option("will"),
                address.qos,
                self._retain,
            )
            if _FIELD.search(will[0]):
                raise ConfigurationError(f"{connector.url()}: a last will is of no row: give will_topic=TOPIC")
        self._link = BrokerLink(address, note=self._notices.append, fail=self._fail, will=will)
        self._link.client.on_publish = self._taken
        self._link.client.max_queued_messages_set(0)  # bounded here
        self._link.client.max_inflight_messages_set(MAX_IN_FLIGHT)
        self._link.start()

    @property
    def latency(self) -> LatencyHistogram:
        """Time from reading to handing over."""
        return self._times.histogram

    def ready(self) -> bool:
        """Return whether more rows may come; `write` raises a failure."""
        if self._failure is not None:
            return True
        if len(self._queue) >= MAX_ROWS_WAITING:
            return False
        if self._address.qos:
            return True
        client = self._link.client
        return client.is_connected() and not client.want_write() and not self._queue

    def _fail(self, error: AgileDartError) -> None:
        self._failure = error
        self._notify_waiters()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def take_notices(self) -> list[str]:
        """Return and forget notices for users about the link."""
        notices = self._notices[:]
        del self._notices[: len(notices)]
        return notices + super().take_notices()

    def write(self, rows: list[Any]) -> None:
        while not self.ready():
            time.sleep(_PAUSE)  # only where no caller asks `ready` before: in a run of one process
        self._check()
        now = self._times.count(rows)
        messages = rendered_rows(rows, now, self._message, self.rejections, self._ids.skip)
        self._queue.extend(messages)
        self._taken_in += len(messages)
        self._publish()

    def _message(self, row: Any, now: int) -> tuple[str, bytes, RowName | None]:
        """Return the message of a row. Raises `RowRefusedError` for one that the protocol cannot carry."""
        payload, topic = self._render(row, now), self._topic(row)
        if len(topic.encode()) > MAX_TOPIC_BYTES:
            raise RowRefusedError(f"its topic has more than {MAX_TOPIC_BYTES:,} bytes")
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise RowRefusedError(f"its payload has {len(payload):,} bytes, at most {MAX_PAYLOAD_BYTES:,} are possible")
        name = RowName(self._ids.prefix + self._ids.next(payload)) if self._names_rows else None
        return topic, payload, name

    def _publish(self) -> None:
        """Publish as many messages as may be unacknowledged, and no more.

        paho sends all that it has at once when it connects again, and brokers cut off clients that exceed their bound. The instance
        calls this method, and the link's thread for each acknowledgement. When both call at once, the second leaves the rest to the
        first.
        """
        qos, retain, client = self._address.qos, self._retain, self._link.client
        while self._queue and self._has_window():
            if not self._publishing.acquire(blocking=False):
                return
            try:
                while self._queue and self._has_window():
                    topic, payload, name = self._queue[0]
                    on_delivered = client.publish(topic, payload, qos, retain, name)
                    if on_delivered.rc and not qos:  # not connected; of the others paho keeps what it could not send
                        return
                    self._queue.popleft()
                    self._published += 1
            finally:
                self._publishing.release()

    def _has_window(self) -> bool:
        if self._address.qos:
            return self._published - self._acknowledged < MAX_IN_FLIGHT
        return self._link.client.is_connected()

    def _taken(self, *_: object) -> None:
        self._link.on_answer()
        self._acknowledged += 1
        self._publish()
        if self._waiters:
            self._notify_waiters()

    def resume_at(self, number: int) -> None:
        """Continue the names of rows at this number, as `NumbersRows` says."""
        self._ids.resume_at(number)

    def when_delivered(self, on_delivered: DeliveryCallback) -> None:
        """Call back when all rows so far have arrived, as `ConfirmsDelivery` says.

        With QoS 1 and 2, brokers acknowledge in order.
        """
        with self._waiting:
            self._waiters.append((self._taken_in, on_delivered))
        self._notify_waiters()

    def _notify_waiters(self) -> None:
        due = []
        with self._waiting:
            while self._waiters and (self._failure is not None or self._waiters[0][0] <= self._acknowledged):
                due.append(self._waiters.popleft()[1])
        for on_delivered in due:
            on_delivered(self._failure)

    def flush(self) -> None:
        """Messages leave by themselves; those that met a broken connection go again."""
        self._check()
        self._publish()

    def connection_status(self) -> str:
        """Return how long the link is down, and why; empty when all is well."""
        return self._link.connection_status()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        before, deadline = 0, time.monotonic() + END_SECONDS
        while (left := self._left()) and self._failure is None and time.monotonic() < deadline:
            time.sleep(_PAUSE)
            if left != before:
                before, deadline = left, time.monotonic() + END_SECONDS
        self._link.close()
        self._check()
        if left:
            raise OperationFailed(f"{left:,} messages were not taken by {self._address.broker} before the end")

    def _left(self) -> int:
        self._publish()
        if self._address.qos:
            return len(self._queue) + self._published - self._acknowledged
        return len(self._queue) + self._link.client.want_write()


def _topic_of(connector: Connector, template: str, row_type: Any) -> Callable[[Any], str]:
    names = _FIELD.findall(template)
    known = [field.name for field in fields_of(row_type)]
    for name in names:
        if name not in known:
            there_are = f"its fields are {', '.join(known)}" if known else "they have no fields"
            raise ConfigurationError(f"{connector.url()}: rows have no field {name!r}; {there_are}")
    if set(_FIELD.sub("", template)) & set("+#{}"):
        raise ConfigurationError(f"{connector.url()}: + and # stand in filters only; fields are written {{name}}")
    if not names:
        return lambda row: template
    text = _FIELD.sub("{}", template)
    getters = [attrgetter(name) for name in names]
    return lambda row: text.format(*(str(get(row)).translate(_WILDCARDS) or "_" for get in getters))


def open_sink(connector: Connector, row_type: Any, clock: Callable[[], int], origin: "SinkOrigin | None") -> MqttWriter:
    """The writer of an `mqtt://` connector."""
    times = LatencyRecorder(row_type, clock)
    return MqttWriter(connector, broker_address(connector), row_type, times, ids_of(origin, row_type))
