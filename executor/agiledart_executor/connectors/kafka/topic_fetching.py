"""`Fetching`: a thread with a loop of its own that fetches a source's messages, again from where it was when brokers come back.

The source chooses its partitions itself: no group deals them out, so the same source reads the same ones each time. A group is
told where the source is, for those who watch how far it lags behind.
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

from agiledart_executor.connectors.kafka import kafka_client
from agiledart_executor.connectors.kafka.brokers import KafkaAddress
from agiledart_executor.connectors.kafka.partitions import Merged, Standing, Wish, grown
from agiledart_executor.connectors.kafka.waiting_messages import MOST_AT_ONCE, Arrivals
from agiledart_kernel.errors import AgileDartError, OperationFailed

TURN_SECONDS: Final = 0.5
"""How long a turn waits for messages: so late, at most, an offset is committed or a new partition seen that is known."""

SILENCE_SECONDS: Final = 2.0
"""After so long without a message brokers are asked whether they are there."""

ROOM_SECONDS: Final = 0.02


class AwayError(Exception):
    """Brokers cannot be asked; the text says why. `what`: as of `Away.gone`."""

    def __init__(self, why: str, what: str = "") -> None:
        super().__init__(why)
        self.what = what


class Fetching:
    """The thread.

    Args:
        group: that is told how far the source is; "": none.
        standing: where it goes on; None: it begins as `wish` says.
        connect, reason: as `kafka_client.consumer` and `kafka_client.reason`.
    """

    def __init__(
        self,
        address: KafkaAddress,
        wish: Wish,
        group: str,
        arrivals: Arrivals,
        standing: Standing | None,
        connect: Callable[[KafkaAddress, str], Any] = kafka_client.consumer,
        reason: Callable[..., Awaitable[str]] = kafka_client.reason,
    ) -> None:
        self._address, self._wish, self._group, self._arrivals = address, wish, group, arrivals
        self._connect, self._reason = connect, reason
        self._next: dict[int, int] = {} if standing is None else dict(standing.at)
        self._ends = None if standing is None else standing.ends
        self._has_begun = standing is not None
        self._merged: Merged | None = None
        self._count = 0  # of the topic's partitions
        self._lock = threading.Lock()
        self._to_commit: dict[int, int] = {}
        self._told_of_commits = ""
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
        """End it; what is to be committed is, if a broker is there."""
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
        except Exception as error:  # noqa: BLE001  a library's
            failure = OperationFailed(f"{self._address.broker}: {type(error).__name__}: {error}")
        self._arrivals.end(failure)

    async def _until_the_end(self) -> None:
        with self._lock:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            if self._is_closed:
                return
        is_over = False
        while not is_over:
            try:
                is_over = await self._session()
            except AwayError as error:
                wait = self._arrivals.away.gone(str(error), what=error.what)
                self._arrivals.tell()
                await asyncio.sleep(wait)

    async def _session(self) -> bool:
        """Read from one consumer until all is read. Raises `AwayError`."""
        consumer = self._connect(self._address, self._group)
        try:
            await self._answered(consumer.start(), kafka_client.START_SECONDS)
            await self._begin(consumer)
            self._arrivals.away.there()
            return await self._read(consumer)
        finally:
            await self._leave(consumer)

    async def _leave(self, consumer: Any) -> None:
        if consumer.assignment() and not self._arrivals.away.why:
            await kafka_client.ended(self._commit(consumer))
        await kafka_client.ended(consumer.stop())

    async def _answered(self, question: Awaitable[Any], seconds: float = kafka_client.ANSWER_SECONDS) -> Any:
        """An answer of a broker; raises `AwayError` when none comes."""
        try:
            async with asyncio.timeout(seconds):
                return await question
        except (KafkaError, TimeoutError) as error:
            raise await self._away(error) from None

    async def _away(self, error: BaseException) -> AwayError:
        """What an error means; one that only says that nobody was reached is explained by calling."""
        broker = self._address.broker
        if isinstance(error, (KafkaConnectionError, NodeNotReadyError, TimeoutError)) or type(error) is KafkaError:
            return AwayError(await self._reason(self._address), f"not connected to {broker}")
        return AwayError(f"{broker}: {kafka_client.error_words(error)}")

    # ---- where it begins

    async def _begin(self, consumer: Any) -> None:
        """Assign its partitions, each to where it goes on."""
        topic = self._address.topic
        if topic not in await self._answered(consumer.topics()):
            raise AwayError(f"{self._address.broker} has no topic {topic}, or does not show it to us")
        partitions = await self._answered(kafka_client.partitions_of(consumer, topic), kafka_client.START_SECONDS)
        self._count = len(partitions)
        await self._assign(consumer, partitions)

    async def _assign(self, consumer: Any, partitions: Any) -> None:
        mine = self._wish.mine(partitions)
        if self._ends is not None:  # what is new since then is behind the end
            mine = [one for one in mine if one in self._ends]
        new = grown(self._next, mine)
        consumer.assign([self._of(one) for one in mine])
        at = await self._answered(
            self._offsets(consumer, new, is_first=not self._has_begun), kafka_client.START_SECONDS
        )
        if not self._has_begun:
            if self._wish.ends:
                found = await self._answered(consumer.end_offsets([self._of(one) for one in mine])) if mine else {}
                self._ends = {tp.partition: end for tp, end in found.items()}
            self._has_begun = True
            self._next = at
            self._arrivals.begun(Standing(dict(at), self._ends))
        self._next |= at
        for one in mine:
            consumer.seek(self._of(one), self._next[one])
        if self._ends is not None:
            self._merged = Merged(mine)
        if not mine:
            self._arrivals.note(f"none of the {len(partitions)} partitions of {self._address.topic} is in this share")

    async def _offsets(self, consumer: Any, partitions: list[int], *, is_first: bool) -> dict[int, int]:
        """Where partitions begin; one that comes later is read from its beginning."""
        if not partitions:
            return {}
        of = [self._of(one) for one in partitions]
        begin = self._wish.begin if is_first else "earliest"
        if begin == "latest":
            found = await consumer.end_offsets(of)
        else:
            found = await consumer.beginning_offsets(of)
        if begin == "time":
            since = await consumer.offsets_for_times(dict.fromkeys(of, self._wish.since_ms))
            ends = await consumer.end_offsets(of)
            found = {tp: ends[tp] if since.get(tp) is None else since[tp].offset for tp in of}
        if begin == "committed":
            for tp in of:
                offset = await consumer.committed(tp)
                found[tp] = found[tp] if offset is None else max(found[tp], offset)
        return {tp.partition: offset for tp, offset in found.items()}

    # ---- reading

    async def _read(self, consumer: Any) -> bool:
        silent_since = time.monotonic()
        while True:
            while self._arrivals.is_full:
                await asyncio.sleep(ROOM_SECONDS)
                silent_since = time.monotonic()
            if await self._turn(consumer):
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
                    self._arrivals.note(
                        f"{self._address.topic} has {self._count} partitions now; the new ones are read, too"
                    )

    async def _turn(self, consumer: Any) -> bool:
        """Fetch what there is; whether there was anything."""
        merged = self._merged
        wanted = [] if merged is None else [self._of(one) for one in merged.wanting()]
        if (merged is not None and not wanted) or not consumer.assignment():
            if merged is None:
                await asyncio.sleep(TURN_SECONDS)
            return False
        try:
            pieces = await consumer.getmany(
                *wanted, timeout_ms=int(TURN_SECONDS * 1_000) if merged is None else 100, max_records=MOST_AT_ONCE
            )
        except OffsetOutOfRangeError as error:
            raise await self._gone(consumer, error) from None
        except UnsupportedCodecError as error:
            raise OperationFailed(
                f"{self._address.topic}: its messages are compressed, which needs a library: {kafka_client.error_words(error)}"
            ) from None
        except KafkaError as error:
            raise await self._away(error) from None
        for tp, messages in pieces.items():
            if merged is not None:
                assert self._ends is not None
                merged.put(tp.partition, [one for one in messages if one.offset < self._ends[tp.partition]])
                continue
            if messages[0].offset < self._next[tp.partition]:  # fetched before it was assigned anew
                messages = [one for one in messages if one.offset >= self._next[tp.partition]]
            if messages:
                self._next[tp.partition] = messages[-1].offset + 1
                self._arrivals.put(messages)
        return bool(pieces)

    async def _has_merged_all(self, consumer: Any) -> bool:
        merged, ends = self._merged, self._ends
        assert merged is not None
        assert ends is not None
        for one in merged.wanting():
            if await self._answered(consumer.position(self._of(one))) >= ends[one]:
                merged.end(one)
        if due := merged.take():
            for message in due:
                self._next[message.partition] = message.offset + 1
            self._arrivals.put(due)
        return merged.is_over

    async def _check(self, consumer: Any) -> None:
        """Are brokers there? Nothing comes of them."""
        if of := sorted(consumer.assignment()):
            await self._answered(consumer.end_offsets(of[:1]))

    async def _gone(self, consumer: Any, error: OffsetOutOfRangeError) -> OperationFailed:
        """What was to be read next is not there."""
        told = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
        for tp, offset in told.items():
            found = await self._answered(consumer.beginning_offsets([tp]))
            return OperationFailed(
                f"{tp.topic}/{tp.partition}: offset {offset:,} was to be read next, and the topic begins at {found[tp]:,}: the"
                " broker has deleted messages that were not read, or the topic was made anew. Submit again to begin where it begins"
            )
        return OperationFailed(f"{self._address.topic}: {kafka_client.error_words(error)}")

    async def _commit(self, consumer: Any) -> None:
        with self._lock:
            offsets, self._to_commit = self._to_commit, {}
        mine = {tp.partition for tp in consumer.assignment()}
        offsets = {one: offset for one, offset in offsets.items() if one in mine}
        if not offsets or not self._group:
            return
        try:
            async with asyncio.timeout(kafka_client.ANSWER_SECONDS):
                await consumer.commit({self._of(one): offset for one, offset in offsets.items()})
        except (KafkaError, TimeoutError) as error:
            why = (
                "members read it who have their partitions from it"
                if isinstance(error, CommitFailedError)
                else kafka_client.error_words(error)
            )
            if why != self._told_of_commits:
                self._told_of_commits = why
                self._arrivals.note(f"the group {self._group} is not told how far this is: {why}")
            with self._lock:
                self._to_commit = offsets | self._to_commit
        else:
            self._told_of_commits = ""

    def _of(self, partition: int) -> TopicPartition:
        return TopicPartition(self._address.topic, partition)
