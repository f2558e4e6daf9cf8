"""Source `http://HOST:PORT/PATH` (and `https:`): rows that a server gives when it is asked.

    https://host/rooms.json                                 once: a bounded source, also for `reference` and `lookup`
    https://host/rooms.json?poll=10s                        every ten seconds, for ever
    https://host/rows?poll=10s&cursor=id&since=after        …/rows?after=LAST, the `id` of the last row that came; page after page
    https://host/rows?member=items&credentials=plant        rows are in the member `items`; Authorization: Bearer …

A server that says `ETag` or `Last-Modified` is asked whether there is anything new; where there is not, no row comes. A server that
says neither gives its rows again each time. A question mark in the path is written %3F. While the server is away it is asked again,
ever later.
"""

from typing import Any, Final
from urllib.parse import quote

import msgspec

from agiledart_connectors.codecs.decoder import Decoder
from agiledart_connectors.codecs.decoder_options import decoder_options
from agiledart_connectors.codecs.formats import open_decoder
from agiledart_connectors.codecs.json_documents import member_of
from agiledart_connectors.codecs.malformed_examples import FORM, SIZE
from agiledart_connectors.http.content_coding import BodyTooLargeError, unpacked
from agiledart_connectors.http.http_address import HttpAddress, client_context, http_address
from agiledart_connectors.http.http_client import HttpClient, HttpResponse
from agiledart_connectors.http.webhook import bearer
from agiledart_connectors.options import SPANS_MS, ReadOptions, number, quantity
from agiledart_connectors.remote.payload_queue import PayloadQueue, PayloadQueueReader
from agiledart_connectors.remote.thread_errors import RetryLaterError
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed

DEFAULT_MAX_BODY_BYTES: Final = 1 << 20
MAX_BODY_BYTES_LIMIT: Final = 64 << 20
MAX_TAG: Final = 1_024
_NOT_CHANGED: Final = 304
_LINED: Final = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")


class HttpPoller:
    """Asks a server, again and again.

    Args:
        connector: says how often and for what.
        address: of the server.
    """

    def __init__(self, connector: Connector, address: HttpAddress) -> None:
        self._address = address
        context = client_context(connector) if address.tls else None
        self._caller = HttpClient(
            address, {"Accept": "*/*", "Accept-Encoding": "gzip, deflate", **bearer(connector)}, context
        )
        self._seconds = quantity(connector, "poll", SPANS_MS, "10s") / 1_000
        self._max_body = number(connector, "max_bytes", DEFAULT_MAX_BODY_BYTES, 1, MAX_BODY_BYTES_LIMIT)
        self._is_lined = connector.option("format", "json") in ("text", "raw")
        self._member, self._cursor = connector.option("member"), connector.option("cursor")
        self._since = connector.option("since") or "since"
        if connector.option("since") and not self._cursor:
            raise ConfigurationError(f"{connector.url()}: since= is the parameter that says a cursor: add cursor=FIELD")
        if (self._cursor or self._member) and connector.option("format", "json") != "json":
            raise ConfigurationError(
                f"{connector.url()}: cursor= and member= look into JSON, not {connector.option('format')}"
            )
        self._last = ""
        self._known: dict[str, str] = {}
        self._was_answered = False

    def __call__(self, incoming: PayloadQueue) -> None:
        """The thread. Raises `OperationFailed` (the server refuses the first question), `RetryLaterError` (it is away)."""
        try:
            while not incoming.is_closed:
                if self._once(incoming):
                    continue
                if not self._seconds or not incoming.pause(self._seconds):
                    return
        finally:
            self._caller.close()

    def _once(self, incoming: PayloadQueue) -> bool:
        """Ask, hand over what came; whether to ask on at once, because a cursor moved."""
        answer = self._caller.ask("GET", self._path(), None, self._known, self._max_body + 1)
        if answer.status == _NOT_CHANGED:
            incoming.report_success()
            return False
        if not answer.is_success:
            error_text = f"{self._address.server} refuses to give {self._address.path} ({answer.error_text()})"
            if not self._was_answered:
                raise OperationFailed(error_text)
            raise RetryLaterError(error_text)
        self._was_answered = True
        incoming.report_success()
        place = f"GET {self._path()}"
        if (content := self._content(answer, place, incoming)) is None:
            return False
        answer = answer._replace(body=content)
        names = {"If-None-Match": "ETag", "If-Modified-Since": "Last-Modified"}
        self._known = {
            ask: tag_text
            for ask, header_name in names.items()
            if _is_safe_tag(tag_text := answer.headers.get(header_name, ""))
        }
        before = self._last
        for data, line in self._payloads(answer, place, incoming):
            if not incoming.put(data, f"{place}:{line}" if line else place):
                return False
        return self._last != before

    def _content(self, answer: HttpResponse, place: str, incoming: PayloadQueue) -> bytes | None:
        """Return the body of an answer, unpacked; None when it is too large, or broken, which is counted."""
        try:
            content = unpacked(answer.body, answer.headers.get("Content-Encoding", ""), self._max_body)
        except ValueError as error:
            is_large = isinstance(error, BodyTooLargeError) or len(answer.body) > self._max_body
            if not is_large:
                incoming.lose(FORM, f"{place}: {error}")
                return None
            content = b""
        else:
            is_large = len(content) > self._max_body
        if is_large:
            incoming.lose(SIZE, f"{place}: an answer of more than {self._max_body:,} bytes (max_bytes)")
            return None
        return content

    def _path(self) -> str:
        path = self._address.path
        if not self._last:
            return path
        return f"{path}{'&' if '?' in path else '?'}{quote(self._since)}={quote(self._last, safe='')}"

    def _payloads(self, answer: HttpResponse, place: str, incoming: PayloadQueue) -> list[tuple[bytes, int]]:
        """Return the payloads of an answer, each with its line in the answer."""
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if self._is_lined or kind in _LINED:
            lines = answer.body.split(b"\n")
            payloads = [(line.removesuffix(b"\r"), number) for number, line in enumerate(lines, 1) if line.strip()]
        elif self._member:
            part = member_of(answer.body, self._member)
            if part is None:
                incoming.lose(FORM, f"{place}: is no JSON object with a member {self._member}")
                return []
            payloads = [(part, 0)]
        else:
            payloads = [(answer.body, 0)] if answer.body.strip() else []
        if self._cursor and payloads:
            self._last = _last_of(payloads[-1][0], self._cursor) or self._last
        return payloads


def _is_safe_tag(tag_text: str) -> bool:
    """Return whether a server's tag may be sent back to it."""
    return bool(tag_text) and len(tag_text) <= MAX_TAG and tag_text.isascii() and tag_text.isprintable()


def _last_of(payload: bytes, name: str) -> str:
    """The cursor of the last row of a payload; empty where there is none."""
    try:
        value = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    if isinstance(value, list):
        value = value[-1] if value else None
    member = value.get(name) if isinstance(value, dict) else None
    return "" if member is None or isinstance(member, dict | list) else str(member)


def open_polling(connector: Connector, row_type: Any, read_options: ReadOptions) -> PayloadQueueReader:
    """The reader of a connector that says nothing of `listen`."""
    address = http_address(connector)
    if not address.host:
        raise ConfigurationError(
            f"{connector.url()}: which server is asked? Write {connector.kind}://HOST:PORT/PATH; a source that listens says"
            " listen=1"
        )
    decoder: Decoder = open_decoder(connector.option("format", "json"), row_type, decoder_options(connector))
    return PayloadQueueReader(f"{address.server}{address.path}", decoder, HttpPoller(connector, address))
