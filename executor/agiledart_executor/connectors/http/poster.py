"""`Poster`: posts bodies to one server over a connection that stays; says of each failure whether a retry may mend it."""

import http.client
import ssl
from collections.abc import Mapping
from typing import Final

from agiledart_executor.connectors.http.http_address import HttpAddress
from agiledart_executor.connectors.outgoing import RetryLater
from agiledart_kernel.errors import OperationFailed

SECONDS: Final = 15.0
MAX_ANSWER: Final = 64 << 10
_LATER: Final = (408, 425, 429, 500, 502, 503, 504)
_SHOWN: Final = 200


class Poster:
    """One thread's client.

    Args:
        address: of the server.
        headers: of every request; they may hold a secret, which is never told.
    """

    def __init__(self, address: HttpAddress, headers: Mapping[str, str], context: ssl.SSLContext | None) -> None:
        self._address, self._headers, self._context = address, dict(headers), context
        self._connection: http.client.HTTPConnection | None = None

    def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Raises `RetryLater` (the server is away or busy) or `OperationFailed` (it refuses this body)."""
        address = self._address
        try:
            connection = self._connected()
            connection.request("POST", path, body, {**self._headers, **headers})
            answer = connection.getresponse()
            text = answer.read(MAX_ANSWER).decode("utf-8", "replace").strip()
            if answer.will_close or not answer.isclosed():
                self.close()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise RetryLater(f"{address.server} does not answer ({_reason(error)})") from None
        if 200 <= answer.status < 300:
            return
        told = f"{answer.status} {answer.reason}" + (f": {text[:_SHOWN]}" if text else "")
        if answer.status in _LATER:
            raise RetryLater(
                f"{address.server} takes nothing now ({told})", _seconds(answer.headers.get("Retry-After"))
            )
        raise OperationFailed(f"{address.server} refuses rows ({told})")

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
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _seconds(text: str | None) -> float | None:
    """What Retry-After says, when it says seconds."""
    return float(text) if text is not None and text.isascii() and text.isdigit() else None
