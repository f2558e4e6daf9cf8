"""Source `mqtt://HOST:PORT/FILTER`: messages of a broker, in any format.

    mqtt://broker/rooms/+/temperature                  QoS 0, a new client at each start
    mqtt://broker/rooms/#?qos=1                        on a mesh: messages sent while no client reads wait at the broker
    mqtt://broker/rooms/#?qos=1&session=rooms          the same under a name that the user gives; session=none: they are lost
    mqtts://broker/$share/g/rooms/#?credentials=plant  over TLS; readers of one group share the messages

A field of type `Topic` holds the topic, one of type `Retained` whether the broker had kept the message. The reader acknowledges
messages of QoS 1 or 2 when the next reading begins: the rows of the last one are on their way by then.
With exactly-once it acknowledges them when their rows are in the source's log on the disk. While rows wait, the reader
acknowledges nothing and the broker sends no more. It sends on messages of QoS 0; the reader drops and counts the surplus
(`overflow`).
"""

import os
import re
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import paho.mqtt.client as paho
from paho.mqtt.subscribeoptions import SubscribeOptions

from agiledart_connectors.codecs.decoder import decoded
from agiledart_connectors.codecs.decoder_options import decoder_options
from agiledart_connectors.codecs.formats import open_decoder
from agiledart_connectors.codecs.malformed_examples import FORM, SIZE, MalformedExamples
from agiledart_connectors.mqtt.broker_address import BrokerAddress, broker_address, check_filter
from agiledart_connectors.mqtt.broker_link import MAX_UNACKNOWLEDGED, BrokerLink
from agiledart_connectors.mqtt.session_settings import session_settings
from agiledart_connectors.options import ReadOptions
from agiledart_connectors.source_origin import SourceOrigin
from agiledart_dataflow.data.schema import Retained, Topic, fields_of, is_named_tuple
from agiledart_dataflow.plan.connectors import Connector, Reading
from agiledart_kernel.errors import AgileDartError, ConfigurationError
from agiledart_kernel.limits import MAX_LINE_BYTES

OVERFLOW: Final = "overflow"
OTHER_TOPIC: Final = "topic"
"""Reason of a message of another topic, which came by another client's subscription."""

SUBSCRIBE_WAIT_S: Final = 1.0
"""Longest time that opening takes for the broker's answer. A reader that is open has its subscription, unless the broker is away.
Messages that are published from then on are not lost."""

MAX_WAITING_BYTES: Final = 8 << 20
MAX_WAITING: Final = 2 * MAX_UNACKNOWLEDGED


class _MqttMessage(NamedTuple):
    """A message that came. `fault`: why it can be no row, by reason and in words; it is acknowledged all the same."""

    topic: str
    payload: bytes
    mid: int
    qos: int
    retained: bool
    generation: int
    fault: tuple[str, str] = ("", "")


class MqttReader:
    """Reads messages as typed rows; a payload that is none is counted by reason."""

    stamps = True

    def __init__(
        self, connector: Connector, address: BrokerAddress, row_type: Any, origin: SourceOrigin | None = None
    ) -> None:
        self._decoder = open_decoder(connector.option("format", "json"), row_type, decoder_options(connector))
        self._examples = MalformedExamples()
        self.on_malformed = self._examples.on_malformed
        self._message_fields = [
            (field.name, field.type) for field in fields_of(row_type) if field.type in (Topic, Retained)
        ]
        if self._message_fields and not is_named_tuple(row_type):
            raise ConfigurationError(
                f"{connector.url()}: rows with a Topic or Retained are NamedTuples, not {row_type!r}"
            )
        self._lock = threading.Lock()
        self._waiting: deque[_MqttMessage] = deque()
        self._bytes = self._dropped = 0
        self._unacknowledged: deque[tuple[int, list[_MqttMessage]]] = deque()  # by number of the taking
        self._takings = 0
        self.holds = False
        self._left: list[Any] = []
        self._notices: list[str] = []
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._closed = False
        self._address = address
        session = session_settings(connector, address, origin)
        self._has_session = bool(session.name)
        self._is_ours = _matcher(address.topic)
        self._failure: AgileDartError | None = None
        self._answered = threading.Event()
        self._link = BrokerLink(
            address, session=session, note=self._note, fail=self._fail, on_connected=self._subscribe
        )
        self._link.client.on_message = self._came
        self._link.client.on_subscribe = self._subscribed
        self._link.start()

    def wait_for_subscription(self, seconds: float) -> bool:
        """Wait until the broker has answered the subscription; return False when it did not in time."""
        return self._answered.wait(seconds)

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        malformed: dict[str, int] = {}
        if self._failure is not None and not self._left and not self._waiting:
            raise self._failure
        if not self._left:
            if not self.holds:
                self.acknowledge(self._takings)
            self._left = self._next_rows(max_rows, wall_ns, malformed)
        rows, self._left = self._left[:max_rows], self._left[max_rows:]
        return Reading(
            rows, len(rows) + sum(malformed.values()), malformed, False, not self._waiting, self._examples.take()
        )

    def receipt(self) -> int:
        """A number for the messages of which all rows were handed out."""
        return self._takings - bool(self._left)

    def acknowledge(self, receipt: int) -> None:
        """So far what was handed out is safe: the broker may forget it."""
        while self._unacknowledged and self._unacknowledged[0][0] <= receipt:
            messages, generation = self._unacknowledged.popleft()[1], self._link.generation
            self._link.client.acknowledge(
                (message.mid, message.qos) for message in messages if message.qos and message.generation == generation
            )

    def fileno(self) -> int:
        """Readable when messages have come."""
        return self._wake

    def connection_status(self) -> str:
        """Return how long the link is down, and why; empty when all is well."""
        return self._link.connection_status()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._link.close()
            os.close(self._wake)

    def _next_rows(self, max_rows: int, wall_ns: int, malformed: dict[str, int]) -> list[Any]:
        with self._lock:
            self._clear()
            taken = [self._waiting.popleft() for _ in range(min(max_rows, len(self._waiting)))]
            self._bytes -= sum(len(message.payload) for message in taken)
            dropped, self._dropped = self._dropped, 0
            for note in self._notices:
                self._examples.note(note)
            self._notices.clear()
            if self._waiting:
                self._wake_reader()
        if dropped:
            malformed[OVERFLOW] = dropped
            self._examples.add(
                OVERFLOW, self._address.topic, f"{dropped:,} messages of QoS 0 came faster than they were taken", None
            )
        if taken:
            self._takings += 1
            self._unacknowledged.append((self._takings, taken))
        for message in taken:
            reason, text = message.fault
            if reason:
                malformed[reason] = malformed.get(reason, 0) + 1
                self._examples.add(reason, f"{message.topic}:", text, message.payload)
        taken = [message for message in taken if not message.fault[0]]
        if not self._message_fields:
            payloads = [message.payload for message in taken]
            return decoded(
                self._decoder, payloads, wall_ns, malformed, self._examples, lambda index: f"{taken[index].topic}:"
            )
        rows: list[Any] = []
        for message in taken:
            field_values = {
                name: message.topic if kind is Topic else message.retained for name, kind in self._message_fields
            }
            place = _place(message.topic)
            rows += [
                row._replace(**field_values)
                for row in decoded(self._decoder, [message.payload], wall_ns, malformed, self._examples, place)
            ]
        return rows

    # ---- in the link's thread

    def _subscribe(self, client: paho.Client) -> None:
        if self._address.version == 5:
            # Subscribing again to a session must not count as new: the broker would send its retained messages each time.
            handling = 1 if self._has_session else 0
            options = SubscribeOptions(qos=self._address.qos, retainAsPublished=True, retainHandling=handling)
            client.subscribe(self._address.topic, options=options)
        else:
            client.subscribe(self._address.topic, self._address.qos)

    def _subscribed(self, _client: paho.Client, _data: Any, _mid: int, reasons: Any, _properties: Any) -> None:
        self._answered.set()
        for reason in reasons:
            if reason.is_failure:
                self._note(f"the broker {self._address.broker} does not let us read {self._address.topic}: {reason}")

    def _came(self, _client: paho.Client, _data: Any, message: Any) -> None:
        payload = message.payload
        self._link.on_answer()
        try:
            topic, fault = message.topic, ("", "")
            if self._has_session and not self._is_ours(topic):
                fault = (
                    OTHER_TOPIC,
                    f"not of {self._address.topic}: another client has subscribed with this session's name",
                )
        except UnicodeDecodeError as error:
            topic, fault = repr(bytes(error.object)), (FORM, "its topic is not UTF-8")
        with self._lock:
            full = len(self._waiting) >= MAX_WAITING or self._bytes >= MAX_WAITING_BYTES
            if full and not message.qos:
                self._dropped += 1
                return
            if len(payload) > MAX_LINE_BYTES:
                fault, payload = (SIZE, f"a message of {len(payload):,} bytes"), b""
            generation = self._link.generation
            self._waiting.append(
                _MqttMessage(topic, payload, message.mid, message.qos, message.retain, generation, fault)
            )
            self._bytes += len(payload)
            if len(self._waiting) == 1:
                self._wake_reader()

    def _fail(self, error: AgileDartError) -> None:
        with self._lock:
            self._failure = error
            self._wake_reader()
        self._answered.set()

    def _note(self, text: str) -> None:
        with self._lock:
            if len(self._notices) < MAX_UNACKNOWLEDGED:
                self._notices.append(text)
            self._wake_reader()

    def _wake_reader(self) -> None:
        if not self._closed:
            os.eventfd_write(self._wake, 1)

    def _clear(self) -> None:
        try:
            os.eventfd_read(self._wake)
        except BlockingIOError:
            return


def _matcher(topic_filter: str) -> Callable[[str], object]:
    """Return a function that says whether a topic matches a filter (MQTT 5, section 4.7)."""
    levels = topic_filter.split("/")
    if levels[0] == "$share":
        levels = levels[2:]
    text = "/".join("[^/]*" if level == "+" else re.escape(level) for level in levels if level != "#")
    if levels[-1] == "#":
        text = f"{text}(/.*)?" if len(levels) > 1 else ".*"
    return re.compile(text, re.DOTALL).fullmatch


def _place(topic: str) -> Callable[[int], str]:
    return lambda _: f"{topic}:"


def open_source(connector: Connector, row_type: Any, read_options: ReadOptions) -> MqttReader:
    """The reader of an `mqtt://` connector."""
    address = broker_address(connector)
    check_filter(f"{connector.kind}:{connector.path}", address.topic)
    reader = MqttReader(connector, address, row_type, read_options.origin)
    reader.wait_for_subscription(SUBSCRIBE_WAIT_S)
    return reader
