"""Messages and output of executor processes, as their agent takes them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import msgspec

from agiledart_agent.executors.bare_process import LaunchError
from agiledart_agent.executors.executor_process import MAX_REASON_LENGTH, ExecutorProcess, OwnProcessNeededError
from agiledart_executor.user_code.crash_report import PendingCall
from agiledart_executor.wire.agent_messages import (
    AcknowledgeCheckpoint,
    CodeLoading,
    DataPeerRefused,
    DeclineCheckpoint,
    ExecutorMessage,
    FeedFetched,
    FetchFeed,
    FindRelays,
    Finished,
    InstanceFailure,
    InstanceHandedOver,
    InstanceName,
    InstanceReports,
    OpenPair,
    PeerVerdict,
    RelaysFound,
    RequestCompleted,
    RequestFailed,
    TapSample,
    UserBoundsSet,
    VerifyPeer,
)
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import FrameReader
from agiledart_kernel.limits import MAX_FRAME_BYTES, MAX_LOG_LINE_BYTES

TO_AGENT: Codec[ExecutorMessage] = Codec(ExecutorMessage)

VerifyPeerCallback = Callable[[VerifyPeer, str, Callable[[PeerVerdict], None]], None]
"""(question, application, takes the answer, now or later)"""


@dataclass
class ExecutorEvents:
    """Callbacks of the pool, all called on the agent's loop.

    `application_ended` is called when a process of an application is gone and no other is here.
    """

    reported: Callable[[str, int, InstanceName, dict[str, object]], None]
    finished: Callable[[str, int, InstanceName, dict[str, object]], None]
    broke: Callable[[str, int, InstanceFailure], None]
    printed: Callable[[str, str], None]
    refused: Callable[[str, str], None]
    verify_peer: VerifyPeerCallback
    call_pending: Callable[[str, int, tuple[InstanceName, ...], PendingCall], None] = (
        lambda application, version, instances, call: None
    )
    sampled: Callable[[str, int, TapSample], None] = lambda application, version, sampled: None
    prepared: Callable[[str, int, AcknowledgeCheckpoint | DeclineCheckpoint], None] = (
        lambda application, version, prepared: None
    )
    relays_requested: Callable[[FindRelays, str, Callable[[RelaysFound], None]], None] = (
        lambda asked, application, answer: None
    )
    rows_requested: Callable[[FetchFeed, str, Callable[[FeedFetched], None]], None] = (
        lambda asked, application, answer: None
    )
    pair_requested: Callable[[OpenPair, ExecutorProcess], None] = lambda asked, executor: None
    application_ended: Callable[[str, int], None] = lambda application, version: None


class ExecutorListener:
    """Takes the messages of executors and the output of their user code, and reports them as events."""

    def __init__(self, events: ExecutorEvents) -> None:
        self._events = events

    async def listen(self, executor: ExecutorProcess, reader: asyncio.StreamReader) -> str:
        """Take the executor's messages until its end of the pair closes. Return the reason of the end; empty: unknown."""
        try:
            async for message in messages_of(reader):
                self.take(executor, message)
        except RemoteProtocolError as error:
            return f"sent an invalid message ({error})"
        except ConnectionError:
            pass  # it ended with messages of ours unread: its exit code says more
        except OSError as error:
            return str(error)
        return ""

    def take(self, executor: ExecutorProcess, message: ExecutorMessage) -> None:
        """Take one message of an executor."""
        executor.watch.sign()
        application, version, events = executor.application, executor.version, self._events
        match message:
            case InstanceReports():
                # Only a report ends the longer timeout of a start: other messages come while user code still loads.
                executor.watch.sign(answers=True)
                if executor.shared is not None:
                    executor.shared.count(message)
                for name, report in message.reports:
                    events.reported(application, version, name, report)
            case VerifyPeer() | FindRelays() | FetchFeed() | OpenPair():
                self._asked_by(executor, message)
            case RequestCompleted() | RequestFailed():
                self._answered(executor, message)
            case Finished() | InstanceHandedOver():
                self._ended_in(executor, message)
            case InstanceFailure():
                hidden_message = executor.secrets.hide(message.message)
                events.broke(application, version, msgspec.structs.replace(message, message=hidden_message))
            case DataPeerRefused():
                events.refused(executor.known_reason(message.reason), message.remote[:MAX_REASON_LENGTH])
            case UserBoundsSet() if executor.shared is None:
                executor.watch.set_bounds(message.bounds)
            case CodeLoading() if executor.shared is not None:
                executor.shared.mark = message.mark
            case AcknowledgeCheckpoint() | DeclineCheckpoint():
                events.prepared(application, version, message)
            case TapSample():
                events.sampled(application, version, message)

    @staticmethod
    def _answered(executor: ExecutorProcess, answer: RequestCompleted | RequestFailed) -> None:
        """Pass the answer to a request on."""
        executor.loading -= 1
        future = executor.launches.get(answer.request)
        is_awaited = future is not None and not future.done()
        if isinstance(answer, RequestCompleted):
            address = executor.address_at(answer.address)
            executor.address = address or executor.address
            if future is not None and is_awaited:
                future.set_result(address)
        elif future is not None and is_awaited:
            kind = OwnProcessNeededError if answer.needs_own_process else LaunchError
            future.set_exception(kind(executor.secrets.hide(answer.message)))

    def _ended_in(self, executor: ExecutorProcess, message: Finished | InstanceHandedOver) -> None:
        """Note the end of an instance, or of its generation."""
        if isinstance(message, InstanceHandedOver):
            executor.remove(message.instance)
            return
        executor.finished.add(message.instance)
        self._events.finished(executor.application, executor.version, message.instance, message.report)

    def _asked_by(self, executor: ExecutorProcess, question: VerifyPeer | FindRelays | FetchFeed | OpenPair) -> None:
        if isinstance(question, OpenPair):
            self._events.pair_requested(question, executor)
        elif isinstance(question, VerifyPeer):
            self._events.verify_peer(question, executor.application, executor.send)
        elif isinstance(question, FetchFeed):
            self._events.rows_requested(question, executor.application, executor.send)
        else:
            self._events.relays_requested(question, executor.application, executor.send)

    async def read_lines(self, executor: ExecutorProcess, output: asyncio.StreamReader) -> None:
        """Keep the output of user code."""
        async for line in lines_of(output):
            self._events.printed(executor.application, executor.secrets.hide(line))


async def messages_of(reader: asyncio.StreamReader) -> AsyncIterator[ExecutorMessage]:
    """Yield the messages of a process until its end of the pair closes. Raises `OSError`, `RemoteProtocolError`."""
    frames = FrameReader(MAX_FRAME_BYTES)
    while data := await reader.read(1 << 16):
        frames.feed(data)
        while (item := frames.next()) is not None:
            yield TO_AGENT.decode(item[1])


async def lines_of(output: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield lines of output, cut at their limit: a process that prints without line ends must not fill memory."""
    pending = b""
    while data := await output.read(1 << 16):
        *lines, pending = (pending + data).split(b"\n")
        if len(pending) > MAX_LOG_LINE_BYTES:
            lines.append(pending)
            pending = b""
        for line in lines:
            yield _text_of(line)
    if pending:
        yield _text_of(pending)


def _text_of(line: bytes) -> str:
    return line[:MAX_LOG_LINE_BYTES].decode("utf-8", "replace").rstrip("\r")
