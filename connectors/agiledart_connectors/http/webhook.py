"""Sink `http://HOST:PORT/PATH` (and `https:`): rows as JSON arrays, posted a batch at a time.

    https://example.org/hook?credentials=hook&batch=100      Authorization: Bearer …, the text of the credential
    https://example.org/hook?body=row&header.X-Room=attic    each row a request of its own; other forms: `webhook_forms.py`

Each batch has an `Idempotency-Key` that is the same when it is sent again, so a server that keeps them takes it once. A run that
is brought back makes other batches of the same rows: each row's name stands in a header (`row_ids`). 408, 425,
429 and 5xx are tried again, as `Retry-After` says or ever later. 400, 409, 413 and 422 refuse rows: the batch is halved until the
refused row is alone, and rejected. Another refusal ends the application.
"""

import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from agiledart_connectors.credentials import secret
from agiledart_connectors.http.http_address import HttpAddress, client_context, http_address
from agiledart_connectors.http.http_client import HttpClient
from agiledart_connectors.http.webhook_forms import headers_of, is_single, row_renderer
from agiledart_connectors.latency_recorder import LatencyRecorder
from agiledart_connectors.options import number
from agiledart_connectors.rejections import RowsRefusedError
from agiledart_connectors.remote.delivery_queue import DeliveryQueueWriter
from agiledart_connectors.remote.row_ids import HEADER, MAX_HEADER_NAME_BYTES, RowIds, ids_of
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError

if TYPE_CHECKING:
    from agiledart_connectors.sink_origin import SinkOrigin

BATCH: Final = 100
KEY: Final = "Idempotency-Key"


class PostingWriter(DeliveryQueueWriter):
    """Writer that posts rows; kinds of sinks decide the form of a body.

    Args:
        body_of: rendered rows of a batch → body.
        render: (row, wall time) → rendered.
        headers_of: rendered rows of a batch → further headers.
    """

    def __init__(
        self,
        connector: Connector,
        address: HttpAddress,
        path: str,
        times: LatencyRecorder,
        render: Callable[[Any, int], Any],
        body_of: Callable[[list[Any]], bytes],
        headers: dict[str, str],
        max_batch_rows: int,
        headers_of: Callable[[list[Any]], dict[str, str]] = lambda batch: {},
    ) -> None:
        self._body_of, self._headers_of, self._path = body_of, headers_of, path
        self._run, self._number = secrets.token_hex(8), 0
        context = client_context(connector) if address.tls else None
        self._caller = HttpClient(address, headers, context)
        super().__init__(address.server, times, render, max_batch_rows=max_batch_rows)

    def deliver(self, batch: list[Any]) -> None:
        headers = {KEY: f"{self._run}-{self._number}", **self._headers_of(batch)}
        try:
            self._caller.post(self._path, self._body_of(batch), headers)
        except RowsRefusedError:
            self._number += 1  # the next body is another one
            raise
        self._number += 1

    def disconnect(self) -> None:
        self._caller.close()


def bearer(connector: Connector, word: str = "Bearer") -> dict[str, str]:
    """Return the header that authenticates this client; none without credentials. Raises like `secret`."""
    name = connector.option("credentials")
    return {"Authorization": f"{word} {secret(name, 'the token')}"} if name else {}


class WebhookWriter(PostingWriter):
    """Posts rows, in one of the forms of `webhook_forms`; their names stand in a header."""

    def __init__(
        self, connector: Connector, address: HttpAddress, row_type: Any, times: LatencyRecorder, ids: RowIds
    ) -> None:
        self._ids = ids
        single = is_single(connector)
        self._render_row, content_type = row_renderer(connector, row_type)
        most = 1 if single else number(connector, "batch", BATCH, 1, 10_000)
        headers = {"Content-Type": content_type, **bearer(connector)}
        for name, value in headers_of(connector).items():  # they replace those of the same name
            headers = {known: text for known, text in headers.items() if known.lower() != name.lower()} | {name: value}
        names = _names if most <= MAX_HEADER_NAME_BYTES else _nothing
        body = _only if single else _array
        super().__init__(
            connector, address, address.path, times, self._rendered, body, headers, most, partial(names, ids.prefix)
        )

    def _rendered(self, row: Any, now: int) -> tuple[bytes, str]:
        text = self._render_row(row, now)
        return text, self._ids.next(text)

    def skip_row(self) -> None:
        self._ids.skip()

    def resume_at(self, number: int) -> None:
        """Continue the names of rows at this number, as `NumbersRows` says."""
        self._ids.resume_at(number)


def _array(batch: list[tuple[bytes, str]]) -> bytes:
    return b"[" + b",".join([text for text, _ in batch]) + b"]"


def _only(batch: list[tuple[bytes, str]]) -> bytes:
    return batch[0][0]


def _names(prefix: str, batch: list[tuple[bytes, str]]) -> dict[str, str]:
    return {HEADER: " ".join([quote(prefix, safe="/"), *(name for _, name in batch)])}


def _nothing(prefix: str, batch: list[tuple[bytes, str]]) -> dict[str, str]:
    return {}


def open_sink(
    connector: Connector, row_type: Any, clock: Callable[[], int], origin: "SinkOrigin | None"
) -> PostingWriter:
    """The writer of an `http:` or `https:` connector."""
    address = http_address(connector)
    if not address.host:
        raise ConfigurationError(f"{connector.url()}: which server? Write {connector.kind}://HOST:PORT/PATH")
    return WebhookWriter(connector, address, row_type, LatencyRecorder(row_type, clock), ids_of(origin, row_type))
