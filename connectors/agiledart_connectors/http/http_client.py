"""`HttpClient`: asks one server over a connection that stays; says of each failure whether a retry may mend it."""

import http.client
import ssl
from collections.abc import Mapping
from email.message import Message
from types import MappingProxyType
from typing import Final, NamedTuple

from agiledart_connectors.http.http_address import HttpAddress
from agiledart_connectors.rejections import RowsRefusedError
from agiledart_connectors.remote.thread_errors import RetryLaterError
from agiledart_kernel.errors import OperationFailed, system_text

SECONDS: Final = 15.0
MAX_RESPONSE_BYTES: Final = 64 << 10
_LATER: Final = (408, 425, 429, 500, 502, 503, 504)
_REFUSED_BODY: Final = (400, 409, 413, 422)
_MAX_SHOWN_CHARACTERS: Final = 200


class HttpResponse(NamedTuple):
    """Answer of a server; `body` is cut at the requested bound."""

    status: int
    reason: str
    headers: Message
    body: bytes

    @property
    def is_success(self) -> bool:
        """2xx."""
        return 200 <= self.status < 300

    def error_text(self) -> str:
        """Return the answer as users read it."""
        text = self.body[: 4 * _MAX_SHOWN_CHARACTERS].decode("utf-8", "replace").strip()
        return f"{self.status} {self.reason}" + (f": {text[:_MAX_SHOWN_CHARACTERS]}" if text else "")


class HttpClient:
    """HTTP client of one thread.

    Args:
        address: of the server.
        headers: of every request; they may hold a secret, which never appears in a text.
    """

    def __init__(self, address: HttpAddress, headers: Mapping[str, str], context: ssl.SSLContext | None) -> None:
        self._address, self._headers, self._context = address, dict(headers), context
        self._connection: http.client.HTTPConnection | None = None

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Raises `RetryLaterError` (away or busy), `RowsRefusedError` (it refuses this body), `OperationFailed` (it refuses us)."""
        answer = self.ask("POST", path, body, headers)
        if answer.status in _REFUSED_BODY:
            raise RowsRefusedError(f"{self._address.server} refuses a row ({answer.error_text()})")
        if not answer.is_success:
            raise OperationFailed(f"{self._address.server} refuses rows ({answer.error_text()})")

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        max_answer: int = MAX_RESPONSE_BYTES,
    ) -> HttpResponse:
        """Raises `RetryLaterError`: the server is away or busy."""
        address = self._address
        try:
            connection = self._connected()
            connection.request(method, path, body, {**self._headers, **headers})
            response = connection.getresponse()
            answer = HttpResponse(response.status, response.reason, response.headers, response.read(max_answer))
            if response.will_close or not response.isclosed():
                self.close()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise RetryLaterError(f"{address.server} does not answer ({_reason(error)})") from None
        if answer.status in _LATER:
            raise RetryLaterError(
                f"{address.server} {'takes' if body else 'gives'} nothing now ({answer.error_text()})",
                _seconds(answer.headers.get("Retry-After")),
            )
        return answer

    def close(self) -> None:
        """Hang up; the next request connects again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            host, port = self._address.host or "127.0.0.1", self._address.port
            if self._address.tls:
                self._connection = http.client.HTTPSConnection(host, port, timeout=SECONDS, context=self._context)
            else:
                self._connection = http.client.HTTPConnection(host, port, timeout=SECONDS)
        return self._connection


def _reason(error: Exception) -> str:
    return system_text(error) or type(error).__name__


def _seconds(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header; None when it holds none."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
