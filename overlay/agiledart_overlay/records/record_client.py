"""Client side of records: requests are routed to the root, repeated until answered, and end in one `RecordAnswer`.

A client remembers the values that it has read. A later read sends the digest, and the root repeats a value that has changed only:
hosts check the records of their applications every ten seconds.
"""

from collections import OrderedDict
from collections.abc import Callable

from agiledart_kernel.limits import MAX_RECORD_BYTES
from agiledart_kernel.node_id import NodeId
from agiledart_overlay.records.record_store import value_digest
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.effects import RecordAnswer
from agiledart_overlay.wire.events import ReadRecord, StoreRecord
from agiledart_overlay.wire.messages import RecordRead, RecordReply, RecordWrite

LEAST_REMEMBERED, MOST_REMEMBERED = 128, 16 << 10
"""Bytes of a value that is remembered: a smaller one is hardly larger than its digest."""

REMEMBERED = 128
"""Values that a client remembers, those that it read last."""


class RecordRequest:
    """One pending request; `message` is the same at each repetition, so that the root carries it out once.

    Attributes:
        known: value whose digest a read sends; empty: none.
    """

    __slots__ = ("deadline", "known", "message", "request", "retry_at")

    def __init__(self, request: int, message: RecordWrite | RecordRead, deadline: int, known: bytes = b"") -> None:
        self.request, self.message, self.deadline, self.known = request, message, deadline, known
        self.retry_at = 0


class RecordClient:
    """Requests of this node about records anywhere.

    Args:
        dispatch: passes a request one hop nearer to its root, or to this node's own root part.
    """

    __slots__ = ("_dispatch", "_remembered", "_requests", "_view")

    def __init__(self, view: View, dispatch: Callable[[RecordWrite | RecordRead], None]) -> None:
        self._view = view
        self._dispatch = dispatch
        self._requests: dict[int, RecordRequest] = {}
        self._remembered: OrderedDict[NodeId, bytes] = OrderedDict()

    def store(self, event: StoreRecord) -> None:
        """Write a record if its version is as expected (compare and set)."""
        view = self._view
        if len(event.value) > MAX_RECORD_BYTES or event.expected_version < 0:
            view.effects.append(RecordAnswer(event.request, ok=False, version=0, value=b"", reason="overloaded"))
            return
        number = view.number()
        self._ask(
            event.request,
            RecordWrite(view.me, number, 0, event.key, event.expected_version, event.value),
        )

    def read(self, event: ReadRecord) -> None:
        """Read a record."""
        known = self._remembered.get(event.key, b"")
        digest = value_digest(known) if known else b""
        self._ask(event.request, RecordRead(self._view.me, self._view.number(), 0, event.key, digest), known)

    def _ask(self, request: int, message: RecordWrite | RecordRead, known: bytes = b"") -> None:
        view = self._view
        if len(self._requests) >= view.config.max_requests_pending:
            view.effects.append(RecordAnswer(request, ok=False, version=0, value=b"", reason="overloaded"))
            return
        question = RecordRequest(request, message, view.now + view.config.record_timeout_ns, known)
        self._requests[message.number] = question
        self._send(question)

    def _send(self, question: RecordRequest) -> None:
        view = self._view
        question.retry_at = min(view.now + view.config.record_retry_ns, question.deadline)
        view.set_timer_by("requests", question.retry_at)
        if view.joined:
            self._dispatch(question.message)

    def on_timer(self) -> None:
        """Repeat unanswered requests; end those that took too long."""
        view = self._view
        for question in [question for question in self._requests.values() if question.retry_at <= view.now]:
            if view.now >= question.deadline:
                del self._requests[question.message.number]
                view.effects.append(RecordAnswer(question.request, ok=False, version=0, value=b"", reason="timeout"))
            else:
                self._send(question)
        if self._requests:
            view.set_timer_by("requests", min(question.retry_at for question in self._requests.values()))

    def on_reply(self, message: RecordReply) -> None:
        """Take the root's answer; ignore a second answer to the same request."""
        question = self._requests.get(message.number)
        if question is None:
            return
        if message.is_known and not question.known:
            self._view.drop("record-known")  # a root that says so of a value that no digest went to; ask again
            return
        del self._requests[message.number]
        value = question.known if message.is_known else message.value
        if isinstance(question.message, RecordRead) and message.ok:
            self._remember(question.message.key, value)
        self._view.effects.append(RecordAnswer(question.request, message.ok, message.version, value, message.reason))

    def _remember(self, key: NodeId, value: bytes) -> None:
        self._remembered.pop(key, None)
        if LEAST_REMEMBERED <= len(value) <= MOST_REMEMBERED:
            self._remembered[key] = value
            if len(self._remembered) > REMEMBERED:
                self._remembered.popitem(last=False)

    def violations(self) -> list[str]:
        """Check that every request has a timer, and that requests are bounded."""
        view = self._view
        questions = self._requests
        if len(questions) > view.config.max_requests_pending:
            return [f"bound: {len(questions)} requests about records, at most {view.config.max_requests_pending}"]
        return (
            view.missing_timer("requests", min(question.retry_at for question in questions.values()))
            if questions
            else []
        )
