"""`TopicFetcher`: a thread with a loop of its own that fetches a source's messages, and resumes where it was when brokers return.

The source chooses its partitions itself, without a group's assignment, so the same source always reads the same ones. It commits
its offsets to a group, so that operators can watch its lag.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import uvloop
from aiokafka import TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    OffsetOutOfRangeError,
    UnsupportedCodecError,
)

from agiledart_connectors.kafka import kafka_client
from agiledart_connectors.kafka.kafka_address import KafkaAddress
from agiledart_connectors.kafka.message_queue import MAX_AT_ONCE, MessageQueue
from agiledart_connectors.kafka.partitions import PartitionMerge, TopicOffsets, TopicSelection, new_partitions
from agiledart_connectors.remote.thread_errors import ThreadErrors, fault_text
from agiledart_kernel.errors import AgileDartError, OperationFailed

POLL_SECONDS: Final = 0.5
"""Time of one wait for messages: the longest delay until an offset is committed or a new known partition is seen."""

SILENCE_SECONDS: Final = 2.0
"""Time without a message after which the fetcher asks whether the brokers are there."""

FULL_QUEUE_PAUSE_SECONDS: Final = 0.02


class BrokersUnreachableError(Exception):
    """Brokers cannot be asked; the text says why. `what`: as of `ConnectionHealth.gone`."""

    def __init__(self, why: str, what: str = "") -> None:
        super().__init__(why)
        self.what = what


class TopicFetcher:
    """Thread that fetches messages into a queue.

    Args:
        group: gets the source's offsets; "": none.
        topic_offsets: where reading continues; None: it begins as `selection` says.
        connect, reason: like `kafka_client.consumer` and `kafka_client.reason`.
    """

    def __init__(
        self,
        address: KafkaAddress,
        selection: TopicSelection,
        group: str,
        message_queue: MessageQueue,
        topic_offsets: TopicOffsets | None,
        connect: Callable[[KafkaAddress, str], Any] = kafka_client.consumer,
        reason: Callable[..., Awaitable[str]] = kafka_client.reason,
    ) -> None:
        self._address, self._selection, self._group, self._message_queue = address, selection, group, message_queue
        self._connect, self._reason = connect, reason
        self._next: dict[int, int] = {} if topic_offsets is None else dict(topic_offsets.at)
        self._ends = None if topic_offsets is None else topic_offsets.ends
        self._has_begun = topic_offsets is not None
        self._merged: PartitionMerge | None = None
        self._count = 0  # of the topic's partitions
        self._lock = threading.Lock()
        self._to_commit: dict[int, int] = {}
        self._reported_commit_failure = ""
        self._errors = ThreadErrors(address.broker)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=f"kafka {address.topic}", daemon=True)
        self._thread.start()

    # ---- for the reader

    def commit(self, offsets: dict[int, int]) -> None:
        """Tell the group, soon."""
        with self._lock:
            self._to_commit |= offsets

    def close(self) -> None:
        """End the thread; it commits pending offsets first if a broker is there."""
        with self._lock:
            self._is_closed = True
            loop, task = self._loop, self._task
        if loop is not None and task is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(task.cancel)
        self._thread.join(3 * kafka_client.END_SECONDS)

    # ---- the thread

    def _run(self) -> None:
        failure: AgileDartError | None = None
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._until_the_end())
        except asyncio.CancelledError:
            if self._is_closed:
                return
            failure = OperationFailed(f"{self._address.broker}: reading was given up")
        except AgileDartError as error:
            failure = error
        except BaseException as error:  # noqa: BLE001  a thread that ended unseen would look like an idle topic
            failure = OperationFailed(f"{self._address.broker}: {fault_text(error)}")
        self._message_queue.end(failure)

    async def _until_the_end(self) -> None:
        with self._lock:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            if self._is_closed:
                return
        is_over = False
        while not is_over:
            try:
                is_over = await self._session()
            except BrokersUnreachableError as error:
                await self._pause(str(error), error.what)
            except Exception as error:
                verdict = self._errors.verdict(error)
                if isinstance(verdict, AgileDartError):
                    raise verdict from error
                await self._pause(str(verdict))

    async def _pause(self, why: str, what: str = "") -> None:
        wait = self._message_queue.health.report_failure(why, what=what)
        self._message_queue.wake_reader()
        await asyncio.sleep(wait)

    async def _session(self) -> bool:
        """Read from one consumer until all is read. Raises `BrokersUnreachableError`."""
        consumer = self._connect(self._address, self._group)
        try:
            await self._answered(consumer.start(), kafka_client.START_SECONDS)
            await self._begin(consumer)
            self._message_queue.health.report_success()
            return await self._read(consumer)
        finally:
            await self._leave(consumer)

    async def _leave(self, consumer: Any) -> None:
        if consumer.assignment() and not self._message_queue.health.why:
            await kafka_client.ended(self._commit(consumer))
        await kafka_client.ended(consumer.stop())

    async def _answered(self, question: Awaitable[Any], seconds: float = kafka_client.ANSWER_SECONDS) -> Any:
        """An answer of a broker; raises `BrokersUnreachableError` when none comes."""
        try:
            async with asyncio.timeout(seconds):
                return await question
        except (KafkaError, TimeoutError) as error:
            raise await self._away(error) from None

    async def _away(self, error: BaseException) -> BrokersUnreachableError:
        """Return the meaning of an error; when it only says that no broker was reached, connect to find out why."""
        broker = self._address.broker
        if isinstance(error, (KafkaConnectionError, NodeNotReadyError, TimeoutError)) or type(error) is KafkaError:
            return BrokersUnreachableError(await self._reason(self._address), f"not connected to {broker}")
        return BrokersUnreachableError(f"{broker}: {kafka_client.error_text(error)}")

    # ---- where it begins

    async def _begin(self, consumer: Any) -> None:
        """Assign its partitions, each to where it goes on."""
        topic = self._address.topic
        if topic not in await self._answered(consumer.topics()):
            raise BrokersUnreachableError(f"{self._address.broker} has no topic {topic}, or does not show it to us")
        partitions = await self._answered(kafka_client.partitions_of(consumer, topic), kafka_client.START_SECONDS)
        self._count = len(partitions)
        await self._assign(consumer, partitions)

    async def _assign(self, consumer: Any, partitions: Any) -> None:
        own_share = self._selection.own_share(partitions)
        if self._ends is not None:  # partitions added since then lie beyond the end
            own_share = [partition for partition in own_share if partition in self._ends]
        new = new_partitions(self._next, own_share)
        consumer.assign([self._of(partition) for partition in own_share])
        at = await self._answered(
            self._offsets(consumer, new, is_first=not self._has_begun), kafka_client.START_SECONDS
        )
        if not self._has_begun:
            if self._selection.ends:
                ends = (
                    await self._answered(consumer.end_offsets([self._of(partition) for partition in own_share]))
                    if own_share
                    else {}
                )
                self._ends = {tp.partition: end for tp, end in ends.items()}
            self._has_begun = True
            self._next = at
            self._message_queue.set_start(TopicOffsets(dict(at), self._ends))
        self._next |= at
        for partition in own_share:
            consumer.seek(self._of(partition), self._next[partition])
        if self._ends is not None:
            self._merged = PartitionMerge(own_share)
        if not own_share:
            self._message_queue.note(
                f"none of the {len(partitions)} partitions of {self._address.topic} is in this share"
            )

    async def _offsets(self, consumer: Any, partitions: list[int], *, is_first: bool) -> dict[int, int]:
        """Return where partitions begin; a partition added later is read from its beginning."""
        if not partitions:
            return {}
        of = [self._of(partition) for partition in partitions]
        begin = self._selection.begin if is_first else "earliest"
        if begin == "latest":
            starts = await consumer.end_offsets(of)
        else:
            starts = await consumer.beginning_offsets(of)
        if begin == "time":
            since = await consumer.offsets_for_times(dict.fromkeys(of, self._selection.since_ms))
            ends = await consumer.end_offsets(of)
            starts = {tp: ends[tp] if since.get(tp) is None else since[tp].offset for tp in of}
        if begin == "committed":
            for tp in of:
                offset = await consumer.committed(tp)
                starts[tp] = starts[tp] if offset is None else max(starts[tp], offset)
        return {tp.partition: offset for tp, offset in starts.items()}

    # ---- reading

    async def _read(self, consumer: Any) -> bool:
        silent_since = time.monotonic()
        while True:
            while self._message_queue.is_full:
                await asyncio.sleep(FULL_QUEUE_PAUSE_SECONDS)
                silent_since = time.monotonic()
            if await self._poll_once(consumer):
                self._errors.on_answer()
                silent_since = time.monotonic()
            if self._merged is not None and await self._has_merged_all(consumer):
                await self._commit(consumer)
                return True
            if time.monotonic() - silent_since > SILENCE_SECONDS:
                await self._check(consumer)
                silent_since = time.monotonic()
            await self._commit(consumer)
            partitions = consumer.partitions_for_topic(self._address.topic)
            if partitions and len(partitions) > self._count:
                self._count = len(partitions)
                await self._assign(consumer, partitions)
                if self._ends is None:
                    self._message_queue.note(
                        f"{self._address.topic} has {self._count} partitions now; the new ones are read, too"
                    )

    async def _poll_once(self, consumer: Any) -> bool:
        """Fetch what there is; whether there was anything."""
        merged = self._merged
        wanted = [] if merged is None else [self._of(partition) for partition in merged.empty_partitions()]
        if (merged is not None and not wanted) or not consumer.assignment():
            if merged is None:
                await asyncio.sleep(POLL_SECONDS)
            return False
        try:
            pieces = await consumer.getmany(
                *wanted, timeout_ms=int(POLL_SECONDS * 1_000) if merged is None else 100, max_records=MAX_AT_ONCE
            )
        except OffsetOutOfRangeError as error:
            raise await self._gone(consumer, error) from None
        except UnsupportedCodecError as error:
            raise OperationFailed(
                f"{self._address.topic}: its messages are compressed, which needs a library: {kafka_client.error_text(error)}"
            ) from None
        except KafkaError as error:
            raise await self._away(error) from None
        for tp, messages in pieces.items():
            if merged is not None:
                assert self._ends is not None
                merged.put(tp.partition, [message for message in messages if message.offset < self._ends[tp.partition]])
                continue
            if messages[0].offset < self._next[tp.partition]:  # fetched before it was assigned anew
                messages = [message for message in messages if message.offset >= self._next[tp.partition]]
            if messages:
                self._next[tp.partition] = messages[-1].offset + 1
                self._message_queue.put(messages)
        return bool(pieces)

    async def _has_merged_all(self, consumer: Any) -> bool:
        merged, ends = self._merged, self._ends
        assert merged is not None
        assert ends is not None
        for partition in merged.empty_partitions():
            if await self._answered(consumer.position(self._of(partition))) >= ends[partition]:
                merged.end(partition)
        if due := merged.take():
            for message in due:
                self._next[message.partition] = message.offset + 1
            self._message_queue.put(due)
        return merged.is_over

    async def _check(self, consumer: Any) -> None:
        """Are brokers there? Nothing comes of them."""
        if of := sorted(consumer.assignment()):
            await self._answered(consumer.end_offsets(of[:1]))

    async def _gone(self, consumer: Any, error: OffsetOutOfRangeError) -> OperationFailed:
        """Return an error for offsets that the topic no longer has."""
        missing = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
        for tp, offset in missing.items():
            beginnings = await self._answered(consumer.beginning_offsets([tp]))
            return OperationFailed(
                f"{tp.topic}/{tp.partition}: offset {offset:,} was to be read next, and the topic begins at {beginnings[tp]:,}: the"
                " broker has deleted messages that were not read, or the topic was made anew. Submit again to begin where it begins"
            )
        return OperationFailed(f"{self._address.topic}: {kafka_client.error_text(error)}")

    async def _commit(self, consumer: Any) -> None:
        with self._lock:
            offsets, self._to_commit = self._to_commit, {}
        own_share = {tp.partition for tp in consumer.assignment()}
        offsets = {partition: offset for partition, offset in offsets.items() if partition in own_share}
        if not offsets or not self._group:
            return
        try:
            async with asyncio.timeout(kafka_client.ANSWER_SECONDS):
                await consumer.commit({self._of(partition): offset for partition, offset in offsets.items()})
        except (KafkaError, TimeoutError) as error:
            why = (
                "the group assigns partitions to other members"
                if isinstance(error, CommitFailedError)
                else kafka_client.error_text(error)
            )
            if why != self._reported_commit_failure:
                self._reported_commit_failure = why
                self._message_queue.note(f"offsets are not committed to the group {self._group}: {why}")
            with self._lock:
                self._to_commit = offsets | self._to_commit
        else:
            self._reported_commit_failure = ""

    def _of(self, partition: int) -> TopicPartition:
        return TopicPartition(self._address.topic, partition)
