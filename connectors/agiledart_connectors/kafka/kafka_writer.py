"""Sink `kafka://HOST:PORT/TOPIC`: each row becomes a message.

    kafka://broker:9092/means                      partitions take turns
    kafka://broker:9092/means?key=room             rows of one room go to one partition, in order; several fields: key=room,floor

The sink delivers rows in batches; each waits until the brokers have it on all in-sync replicas. The producer is idempotent: a
message sent again after a broken connection is stored once.
A killed process has sent rows after its last epoch; the next attempt sends them again. The header `row-id` has the row's name
(`row_ids`), which is then the same.
"""

import asyncio
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aiokafka.errors import (
    InvalidProducerEpoch,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RecordListTooLargeError,
    UnknownProducerId,
    UnknownTopicOrPartitionError,
)

from agiledart_connectors.codecs.payloads import payload_renderer
from agiledart_connectors.kafka import kafka_client
from agiledart_connectors.kafka.kafka_address import KafkaAddress, kafka_address
from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_connectors.options import number
from agiledart_connectors.remote.delivery_queue import MAX_AT_ONCE, DeliveryQueueWriter
from agiledart_connectors.remote.row_ids import NAME, RowIds, ids_of
from agiledart_connectors.remote.thread_errors import RetryLaterError
from agiledart_dataflow.data.schema import fields_of, is_dict
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed

if TYPE_CHECKING:
    from agiledart_connectors.sink_origin import SinkOrigin

TAKE_SECONDS: Final = 10.0
"""Time that a batch waits for brokers before users get a notice; it goes on waiting."""

MAX_BYTES: Final = 1 << 20
"""Default of `max_bytes`, bytes of a message: the bound of brokers in their default configuration."""

_ANEW: Final = (OutOfOrderSequenceNumber, ProducerFenced, InvalidProducerEpoch, UnknownProducerId)
"""Errors that end a producer, because the broker has forgotten it."""


_TOO_LARGE: Final = (MessageSizeTooLargeError, RecordListTooLargeError)


class _KafkaMessage(NamedTuple):
    value: bytes
    key: bytes | None
    name: bytes


class KafkaWriter(DeliveryQueueWriter):
    """Delivers rows.

    Args:
        connect, reason: as `kafka_client.producer` and `kafka_client.reason`.
    """

    def __init__(
        self,
        connector: Connector,
        address: KafkaAddress,
        row_type: Any,
        times: LatencyRecorder,
        ids: RowIds,
        connect: Callable[[KafkaAddress, int], Any] = kafka_client.producer,
        reason: Callable[..., Any] = kafka_client.reason,
    ) -> None:
        self._address, self._ids, self._connect, self._reason = address, ids, connect, reason
        self._max_bytes = number(connector, "max_bytes", MAX_BYTES, 1_000, 64 << 20)
        most = number(connector, "batch", MAX_AT_ONCE, 1, 10_000)
        self._payload = payload_renderer(connector, row_type)
        self._key = _key_of(connector, row_type)
        self._loop = asyncio.new_event_loop()  # runs while a batch is delivered
        self._producer: Any = None
        self._sending: list[_KafkaMessage] | None = None
        self._left: list[
            tuple[_KafkaMessage, Any]
        ] = []  # unconfirmed messages of that batch, with their futures once they were sent
        super().__init__(address.broker, times, self._rendered, max_batch_rows=most)

    def skip_row(self) -> None:
        self._ids.skip()

    def resume_at(self, number: int) -> None:
        """Continue the names of rows at this number, as `NumbersRows` says."""
        self._ids.resume_at(number)

    def deliver(self, batch: list[Any]) -> None:
        self._loop.run_until_complete(self._deliver(batch))

    def disconnect(self) -> None:
        producer, self._producer = self._producer, None
        if self._loop.is_closed():
            return
        if producer is not None:
            self._loop.run_until_complete(kafka_client.ended(producer.stop()))
        self._loop.close()

    def _rendered(self, row: Any, now: int) -> _KafkaMessage:
        value = self._payload(row, now)
        return _KafkaMessage(value, self._key(row), (self._ids.prefix + self._ids.next(value)).encode())

    async def _deliver(self, batch: list[_KafkaMessage]) -> None:
        if batch is not self._sending:  # the same one comes again until all of it is there
            self._sending, self._left = batch, [(message, None) for message in batch]
        producer = await self._connected()
        try:
            async with asyncio.timeout(TAKE_SECONDS):
                for index, (message, future) in enumerate(self._left):
                    if future is None:
                        self._left[index] = message, await self._sent(producer, message)
            self._left = [(message, future) for message, future in self._left if future is not None]
            if self._left:
                await asyncio.wait([future for _, future in self._left], timeout=TAKE_SECONDS)
        except TimeoutError:
            raise await self._late(producer) from None
        for message, future in self._left:
            if future.done() and isinstance(future.exception(), _TOO_LARGE):
                self.rejections.refuse(message.value, self._too_large_text())
        self._left = [
            (message, future)
            for message, future in self._left
            if not (future.done() and isinstance(future.exception(), _TOO_LARGE))
        ]
        faults = [future.exception() for _, future in self._left if future.done()]
        self._left = [(message, future) for message, future in self._left if not future.done() or future.exception()]
        for fault in faults:
            if fault is not None:
                await self._refused(fault)
        if self._left:
            raise await self._late(producer)

    async def _sent(self, producer: Any, message: _KafkaMessage) -> Any:
        try:
            return await producer.send(
                self._address.topic, message.value, key=message.key, headers=[(NAME, message.name)]
            )
        except _TOO_LARGE:
            self.rejections.refuse(message.value, self._too_large_text())
            return None
        except KafkaError as error:
            await self._refused(error)
            raise AssertionError("_refused returned without raising") from error

    async def _connected(self) -> Any:
        if self._producer is None:
            producer = self._connect(self._address, self._max_bytes)
            try:
                async with asyncio.timeout(kafka_client.START_SECONDS):
                    await producer.start()
            except (KafkaError, TimeoutError):
                await kafka_client.ended(producer.stop())
                raise await self._away() from None
            self._producer = producer
        return self._producer

    async def _late(self, producer: Any) -> RetryLaterError:
        """Return why delivery takes so long: the topic is missing, or no broker answers."""
        try:
            async with asyncio.timeout(kafka_client.ANSWER_SECONDS):
                topics = (await producer.client.fetch_all_metadata()).topics()
        except (KafkaError, TimeoutError):
            return await self._away()
        if self._address.topic not in topics:
            return self._no_topic()
        return RetryLaterError("it takes its time", what=f"{self._address.broker} has not taken rows")

    def _no_topic(self) -> RetryLaterError:
        topic = self._address.topic
        return RetryLaterError(
            f"{self._address.broker} has no topic {topic}, or does not show it to us, and makes none"
        )

    async def _away(self) -> RetryLaterError:
        return RetryLaterError(await self._reason(self._address), what=f"not connected to {self._address.broker}")

    def _too_large_text(self) -> str:
        where = f"{self._address.broker}, topic {self._address.topic}"
        return f"{where}: a row is larger than a message may be: here max_bytes={self._max_bytes}, the broker has its own bound"

    async def _refused(self, error: BaseException) -> None:
        """Raises what it means: a wait, or the end. Pending messages stay with their producer, which sends them once."""
        where = f"{self._address.broker}, topic {self._address.topic}"
        self._left = [(message, None if _has_failed(future) else future) for message, future in self._left]
        if isinstance(error, _ANEW):
            producer, self._producer = self._producer, None
            self._left = [(message, None) for message, _ in self._left]
            await kafka_client.ended(producer.stop())
            raise RetryLaterError(f"{where}: {kafka_client.error_text(error)}; a new producer begins", 0.0)
        if isinstance(error, UnknownTopicOrPartitionError):
            raise self._no_topic()
        if isinstance(error, (KafkaConnectionError, KafkaTimeoutError)):
            raise await self._away()
        if isinstance(error, KafkaError) and error.retriable:
            raise RetryLaterError(f"{where}: {kafka_client.error_text(error)}")
        raise OperationFailed(f"{where}: {kafka_client.error_text(error)}")


def _has_failed(future: Any) -> bool:
    return future is None or (future.done() and future.exception() is not None)


def _key_of(connector: Connector, row_type: Any) -> Callable[[Any], bytes | None]:
    names = [name for name in connector.option("key").split(",") if name]
    if not names:
        return lambda row: None
    if is_dict(row_type):
        return lambda row: ",".join(str(row.get(name)) for name in names).encode("utf-8", "replace")
    known = [field.name for field in fields_of(row_type)]
    for name in names:
        if name not in known:
            there_are = f"its fields are {', '.join(known)}" if known else "they have no fields"
            raise ConfigurationError(f"{connector.url()}: rows have no field {name!r}; {there_are}")
    getters = [attrgetter(name) for name in names]
    return lambda row: ",".join(str(get(row)) for get in getters).encode("utf-8", "replace")


def open_sink(
    connector: Connector, row_type: Any, clock: Callable[[], int], origin: "SinkOrigin | None"
) -> KafkaWriter:
    """The writer of a `kafka://` connector."""
    times = LatencyRecorder(row_type, clock)
    return KafkaWriter(connector, kafka_address(connector), row_type, times, ids_of(origin, row_type))
