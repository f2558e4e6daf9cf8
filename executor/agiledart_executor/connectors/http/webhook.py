"""Sink `http://HOST:PORT/PATH` (and `https:`): rows as JSON arrays, posted a batch at a time.

    https://example.org/hook?credentials=hook&batch=100      Authorization: Bearer …, the text of the credential

Each batch has an `Idempotency-Key` that is the same when it is sent again, so a server that keeps them takes it once. 408, 425,
429 and 5xx are tried again, as `Retry-After` says or ever later; another refusal ends the application.
"""

import secrets
from collections.abc import Callable
from typing import Any, Final

import msgspec

from agiledart_dataflow.counts.latency import LatencyHistogram
from agiledart_dataflow.plan.connectors import Connector
from agiledart_executor.connectors.codecs.rendering import json_of
from agiledart_executor.connectors.credentials import secret
from agiledart_executor.connectors.http.http_address import HttpAddress, client_context, http_address
from agiledart_executor.connectors.http.poster import Poster
from agiledart_executor.connectors.memory import ReadTimes
from agiledart_executor.connectors.options import number
from agiledart_executor.connectors.outgoing import Outgoing
from agiledart_kernel.errors import ConfigurationError

BATCH: Final = 100
KEY: Final = "Idempotency-Key"


class PostingWriter:
    """Posts rows; what a body is, kinds of sinks decide.

    Args:
        body_of: rendered rows of a batch → (body, further headers). A batch that is sent again is the same batch.
        render: (row, wall time) → rendered.
    """

    def __init__(
        self,
        connector: Connector,
        address: HttpAddress,
        path: str,
        times: ReadTimes,
        render: Callable[[Any, int], Any],
        body_of: Callable[[list[Any]], bytes],
        headers: dict[str, str],
        most_at_once: int,
    ) -> None:
        self._times, self._render, self._body_of, self._path = times, render, body_of, path
        self._run, self._number = secrets.token_hex(8), 0
        context = client_context(connector) if address.tls else None
        self._poster = Poster(address, headers, context)
        self._out = Outgoing(address.server, self._deliver, most_at_once=most_at_once)

    @property
    def latency(self) -> LatencyHistogram:
        """Time from reading to handing over."""
        return self._times.histogram

    def ready(self) -> bool:
        """Whether more rows may come."""
        return self._out.ready()

    def take_notes(self) -> list[str]:
        """What users should know of the server."""
        return self._out.take_notes()

    def standing(self) -> str:
        """What rows wait for; empty when all is well."""
        return self._out.standing()

    def write(self, rows: list[Any]) -> None:
        now = self._times.count(rows)
        self._out.put([self._render(row, now) for row in rows])

    def flush(self) -> None:
        """Rows leave by themselves."""
        self._out.check()

    def close(self) -> None:
        try:
            self._out.close()
        finally:
            self._poster.close()

    def _deliver(self, rendered: list[Any]) -> None:
        self._poster.post(self._path, self._body_of(rendered), {KEY: f"{self._run}-{self._number}"})
        self._number += 1


def bearer(connector: Connector, word: str = "Bearer") -> dict[str, str]:
    """The header that proves who we are; none without credentials. Raises as `secret`."""
    name = connector.option("credentials")
    return {"Authorization": f"{word} {secret(name)}"} if name else {}


def open_sink(connector: Connector, row_type: Any, clock: Callable[[], int], origin: object) -> PostingWriter:
    """The writer of an `http:` or `https:` connector."""
    address = http_address(connector)
    if not address.host:
        raise ConfigurationError(f"{connector.url()}: which server? Write {connector.kind}://HOST:PORT/PATH")
    return PostingWriter(
        connector,
        address,
        address.path,
        ReadTimes(row_type, clock),
        json_of(row_type),
        msgspec.json.Encoder().encode,
        {"Content-Type": "application/json", **bearer(connector)},
        number(connector, "batch", BATCH, 1, 10_000),
    )
