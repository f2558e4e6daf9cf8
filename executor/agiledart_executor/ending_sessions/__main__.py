"""Program `python -m agiledart_executor.ending_sessions`: ends the sessions that brokers keep for the sources of an ended run.

It reads a `SessionRequest` from standard input and writes to standard output, as a list of texts, why sessions are left.
"""

import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec

from agiledart_connectors.credentials import provision_secrets
from agiledart_connectors.mqtt.broker_session import EndedSession, SessionRequest
from agiledart_connectors.remote.connection_health import MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS
from agiledart_kernel.errors import AgileDartError, ConfigurationError

SECONDS: Final = 90.0
"""Time for which a broker that is away is tried again."""


def end(session: EndedSession, pause: Callable[[float], None] = time.sleep, seconds: float = SECONDS) -> str:
    """End one session; return why it is left, empty when it is not."""
    from agiledart_connectors.mqtt.mqtt_probe import end_session, own_session  # the extra `[mqtt]` may be missing

    connector = session.connector.connector()
    wait, why, deadline = MIN_BACKOFF_SECONDS, "", time.monotonic() + seconds
    while True:
        try:
            name = own_session(connector, session.network, session.application, session.step, session.index)
            if name:
                end_session(connector, name)
        except ConfigurationError as error:
            return f"{session.step}: {error}"
        except AgileDartError as error:
            why = f"{session.step}: the session {name} is left: {error}" if name else f"{session.step}: {error}"
        else:
            return ""
        if time.monotonic() + wait > deadline:
            return why
        pause(wait)
        wait = min(2 * wait, MAX_BACKOFF_SECONDS)


def main() -> None:
    """Answer the request on standard input on standard output."""
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=SessionRequest)
    provision_secrets(request.secrets)
    left = []
    for session in request.sessions:
        try:
            left.append(end(session))
        except ImportError as error:
            left.append(f"{session.step}: {error}")
    sys.stdout.buffer.write(msgspec.msgpack.encode([request.secrets.hide(text) for text in left if text]))


if __name__ == "__main__":
    main()
