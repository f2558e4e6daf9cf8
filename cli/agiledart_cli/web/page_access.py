"""Admission of browsers to the page: a token that works once, the cookie that it becomes, and checks of Host and Origin.

Other web pages in the same browser can send requests to a port of this machine. They cannot read the cookie, name this
server as their origin, or pass the check of the Host header with a name of their own.
"""

import hmac
import secrets
from collections.abc import Callable

COOKIE_SECONDS = 8 * 3600
MAX_SESSIONS = 16
"""Sessions at one time; a further one ends the oldest."""

MAX_TOKENS = 4
"""Unused tokens at one time; a further one replaces the oldest."""

_SECRET_BYTES = 24


class PageAccess:
    """Tokens and sessions of one server.

    Args:
        port: port of the server; part of the cookie's name, because browsers share cookies among ports.
        clock: monotonic seconds.

    Attributes:
        secret: a token that begins any number of sessions, of a page that an agent started; empty: none.
    """

    def __init__(self, port: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.secret = ""
        self._tokens: list[str] = []
        self._sessions: dict[str, float] = {}
        self.cookie_name = f"agiledart-{port}"
        self.hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]"))

    def new_token(self) -> str:
        """Return a token that begins one session."""
        self._tokens = [*self._tokens, secrets.token_urlsafe(_SECRET_BYTES)][-MAX_TOKENS:]
        return self._tokens[-1]

    def begin_session(self, token: str) -> str | None:
        """Take a token. Return the value of the session's cookie; None when the token is unknown or was used."""
        known = [candidate for candidate in self._tokens if hmac.compare_digest(candidate.encode(), token.encode())]
        if known:
            self._tokens.remove(known[0])
        elif not self.secret or not hmac.compare_digest(self.secret.encode(), token.encode()):
            return None
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session = secrets.token_urlsafe(_SECRET_BYTES)
        self._sessions[session] = self._clock() + COOKIE_SECONDS
        return session

    def set_cookie(self, session: str) -> str:
        """Return the value of the header Set-Cookie."""
        return f"{self.cookie_name}={session}; Path=/; HttpOnly; SameSite=Strict; Max-Age={COOKIE_SECONDS}"

    def is_session(self, cookie_header: str) -> bool:
        """Return whether a Cookie header names a session that has not ended."""
        for pair in cookie_header.split(";"):
            name, _, value = pair.strip().partition("=")
            if name == self.cookie_name and (ends := self._sessions.get(value)) is not None:
                if self._clock() < ends:
                    return True
                del self._sessions[value]
        return False

    def is_own_host(self, host_header: str) -> bool:
        """Return whether the request names this server by a loopback address; a foreign name would be DNS rebinding."""
        return host_header.lower() in self.hosts

    def is_own_origin(self, origin_header: str | None, fetch_site: str | None) -> bool:
        """Return whether a request that changes something was sent by this page itself."""
        if fetch_site not in (None, "same-origin"):
            return False
        scheme, _, host = (origin_header or "").partition("://")
        return scheme == "http" and host.lower() in self.hosts
