"""Client side of records: requests are routed to the root, repeated until answered, and end in one `RecordAnswer`."""

from collections.abc import Callable

from agiledart_kernel.limits import MAX_RECORD_BYTES
from agiledart_overlay.state.view import View
from agiledart_overlay.wire.effects import RecordAnswer
from agiledart_overlay.wire.events import ReadRecord, StoreRecord
from agiledart_overlay.wire.messages import RecordRead, RecordReply, RecordWrite


class RecordRequest:
    """One pending request; `message` is the same at each repetition, so that the root carries it out once."""

    __slots__ = ("deadline", "message", "request", "retry_at")

    def __init__(self, request: int, message: RecordWrite | RecordRead, deadline: int) -> None:
        self.request, self.message, self.deadline = request, message, deadline
        self.retry_at = 0


class RecordClient:
    """Requests of this node about records anywhere.

    Args:
        dispatch: passes a request one hop nearer to its root, or to this node's own root part.
    """

    __slots__ = ("_dispatch", "_requests", "_view")

    def __init__(self, view: View, dispatch: Callable[[RecordWrite | RecordRead], None]) -> None:
        self._view = view
        self._dispatch = dispatch
        self._requests: dict[int, RecordRequest] = {}

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
        self._ask(event.request, RecordRead(self._view.me, self._view.number(), 0, event.key))

    def _ask(self, request: int, message: RecordWrite | RecordRead) -> None:
        view = self._view
        if len(self._requests) >= view.config.max_requests_pending:
            view.effects.append(RecordAnswer(request, ok=False, version=0, value=b"", reason="overloaded"))
            return
        question = RecordRequest(request, message, view.now + view.config.record_timeout_ns)
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
        question = self._requests.pop(message.number, None)
        if question is not None:
            self._view.effects.append(
                RecordAnswer(question.request, message.ok, message.version, message.value, message.reason)
            )

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
