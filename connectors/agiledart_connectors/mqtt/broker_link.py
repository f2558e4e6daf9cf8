"""`BrokerLink`: client of a broker that connects in the background, again and again, and describes its status in words.

paho's thread owns the socket, so keep-alives go out while an instance works or waits. It puts received messages into a queue.
"""

import secrets
import ssl
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from agiledart_connectors.mqtt.broker_address import BrokerAddress
from agiledart_connectors.mqtt.read_ahead import EagerClient
from agiledart_connectors.mqtt.session_settings import SessionSettings
from agiledart_connectors.remote.thread_errors import ThreadErrors
from agiledart_kernel.errors import AgileDartError, OperationFailed, system_text

KEEP_ALIVE_SECONDS: Final = 30
MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1, 30
MAX_UNACKNOWLEDGED: Final = 4_096
"""Messages of QoS 1 and 2 that a broker may send before the first is acknowledged; so many wait here at most."""

TAKEN_OVER: Final = 0x8E
"""Reason of a broker of MQTT 5 for ending a connection: another client came with the same identifier."""

SHORT_SECONDS: Final = 5
MANY_SHORT: Final = 3
"""So many connections in a row that break so soon tell of another client, where a broker of MQTT 3.1.1 gives no reason."""


_NO_SESSION: Final = SessionSettings()


class BrokerLink:
    """Client of one broker.

    Args:
        address: of the broker.
        session: to keep at the broker.
        on_connected: called by the link's thread with the client; subscribes.
        note: called when the link goes up or down.
        fail: called by the link's thread with the reason, when it has ended for good.
        will: (topic, payload, qos, retain) that the broker publishes when this client vanishes without disconnecting.

    Raises:
        OperationFailed: certificates cannot be used.
    """

    def __init__(
        self,
        address: BrokerAddress,
        *,
        session: SessionSettings = _NO_SESSION,
        note: Callable[[str], None],
        fail: Callable[[AgileDartError], None],
        on_connected: Callable[[paho.Client], None] | None = None,
        will: tuple[str, str, int, bool] | None = None,
    ) -> None:
        self.address = address
        self._note, self._fail = note, fail
        self._errors = ThreadErrors(f"the broker {address.broker}")
        self.on_answer = self._errors.on_answer
        self._last_notice = ""
        self._away_since: float | None = time.monotonic()
        self._why, self._next_try, self._tries = "", 0.0, 0
        self._is_five = address.version == 5
        self._session = session
        self._connected_at = 0.0
        self._short_connections = 0
        self.seconds_away = 0.0
        """Time without a connection after the first one."""
        self._on_connected = on_connected
        self._is_source = on_connected is not None
        self.generation = 0
        """Number of the connection: acknowledgements belong to one."""
        self._drops_earlier = bool(session.name) and session.begins
        keeps = bool(session.name) and not self._drops_earlier
        client = self.client = client_of(address, client_id=session.name or address.client, session=keeps)
        client.reconnect_delay_set(0 if self._drops_earlier else MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        if will is not None:
            client.will_set(*will)
        client.on_thread_error = self._thread_error
        client.on_connect = self._connected
        client.on_connect_fail = self._failed
        client.on_disconnect = self._disconnected
        arguments: dict[str, Any] = {}
        if self._is_five:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.ReceiveMaximum = MAX_UNACKNOWLEDGED
            if session.name:
                properties.SessionExpiryInterval = session.expiry_seconds
            arguments = {"clean_start": not keeps, "properties": properties}
        self._arguments = arguments

    def start(self) -> None:
        """Begin to connect; callbacks come from now on."""
        self.client.connect_async(self.address.host, self.address.port, KEEP_ALIVE_SECONDS, **self._arguments)
        self.client.loop_start()

    def connection_status(self) -> str:
        """Return since when and why the link is down; empty when it is connected."""
        since = self._away_since
        if since is None:
            if self._session.is_refused and self.seconds_away:
                return f"no source listened for {self.seconds_away:.0f} s in all: messages of that time are lost (session=none)"
            return ""
        now = time.monotonic()
        why = f" ({self._why})" if self._why else ""
        following = f", next try in {max(0.0, self._next_try - now):.0f} s" if self._next_try else ""
        lost = ", messages of this time are lost (session=none)" if self._session.is_refused else ""
        return f"not connected to {self.address.broker} for {now - since:.0f} s{why}{lost}{following}"

    def close(self) -> None:
        """Say good-bye and end the thread."""
        self.client.disconnect()
        self.client.loop_stop()

    def _connected(self, client: paho.Client, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._is_away(str(reason))
            self._notify(
                f"the broker {self.address.broker} refuses us: {reason}; trying again, ever later up to every 30 s"
            )
            return
        if self._drops_earlier:
            # Two connections: mosquitto writes no session to its disk that began with a clean start.
            self._drops_earlier = False
            self.client.reconnect_delay_set(MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
            self.client.keep_session()
            return
        now = time.monotonic()
        self.generation += 1
        away = now - self._away_since if self._away_since is not None and self.generation > 1 else 0.0
        self.seconds_away += away
        self._away_since, self._tries, self._connected_at = None, 0, now
        losses = self._losses(flags, away)
        if losses or ((self._last_notice or self.generation > 1) and self._short_connections < MANY_SHORT):
            self._notify(f"connected to {self.address.broker}{losses}")
        if self._on_connected is not None:
            self._on_connected(client)

    def _losses(self, flags: Any, away: float) -> str:
        """Return what may be lost at this connection; empty when nothing is."""
        session = self._session
        expects = session.name and (self.generation > 1 or not session.begins)
        if expects and not flags.session_present and self._is_source:
            since = f" of the last {away:.0f} s" if away else ""
            return f"; it has no session {session.name} any more: messages{since} may be lost"
        if not session.name and away and self._is_source and self.address.qos:
            return f"; no source listened for {away:.0f} s: messages of that time are lost (no session)"
        return ""

    def _failed(self, _client: paho.Client, _data: Any) -> None:
        error = sys.exception()  # paho calls this while it handles what went wrong
        self._is_away(("" if error is None else system_text(error)).lower())
        self._notify(f"not connected to {self.address.broker}; trying again, ever later up to every 30 s")

    def _disconnected(self, _client: paho.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._is_away(str(reason).lower(), self.client.last_contact)
            is_short = time.monotonic() - self._connected_at < SHORT_SECONDS
            self._short_connections = self._short_connections + 1 if is_short else 0
            if self._short_connections < MANY_SHORT:
                self.client.reconnect_delay_set(MIN_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
            name = self._session.name or self.address.client
            if name and (reason == TAKEN_OVER or self._short_connections >= MANY_SHORT):
                self._short_connections = max(self._short_connections, MANY_SHORT)
                self.client.reconnect_delay_set(SHORT_SECONDS, MAX_BACKOFF_SECONDS)
                self._notify(
                    f"another client {'uses' if reason == TAKEN_OVER else 'seems to use'} the name {name} at"
                    f" {self.address.broker}: each throws the other out. Give one of them a session= or client= of its own"
                )
                return
            self._notify(
                f"the connection to {self.address.broker} broke ({reason}); trying again, ever later up to every 30 s"
            )

    def _thread_error(self, error: BaseException) -> bool:
        """An error left the thread: connect again, or end with it."""
        verdict = self._errors.verdict(error)
        self._is_away(str(verdict))
        if isinstance(verdict, AgileDartError):
            self._fail(verdict)
            return False
        self._notify(
            f"the connection to {self.address.broker} broke ({verdict}); trying again, ever later up to every 30 s"
        )
        return True

    def _is_away(self, why: str, since: float = 0.0) -> None:
        """Not connected, or still not; paho waits twice as long each time before it tries again.

        `since`: when the broker was heard last; a dead link is noticed a keep-alive later.
        """
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = since or now
        self._why = why
        self._next_try = now + min(MIN_BACKOFF_SECONDS * 2**self._tries, MAX_BACKOFF_SECONDS)
        self._tries = min(self._tries + 1, 16)

    def _notify(self, text: str) -> None:
        """Once, however often it happens."""
        if text != self._last_notice:
            self._last_notice = text
            self._note(text)


def client_of(address: BrokerAddress, *, client_id: str, session: bool) -> EagerClient:
    """A client of a broker, not yet connected. Raises `OperationFailed`: certificates cannot be used."""
    is_five = address.version == 5
    client = EagerClient(
        CallbackAPIVersion.VERSION2,
        client_id=client_id or f"agiledart-{secrets.token_hex(6)}",
        protocol=MQTTProtocolVersion.MQTTv5 if is_five else MQTTProtocolVersion.MQTTv311,
        clean_session=None if is_five else not session,
        manual_ack=True,
    )
    if address.login is not None:
        client.username_pw_set(*address.login)
    if address.tls:
        client.tls_set_context(_context(address))
    return client


def _context(address: BrokerAddress) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=address.ca or None)
        if address.cert:
            context.load_cert_chain(address.cert, address.key or None)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (address.ca, address.cert, address.key)))
        raise OperationFailed(f"certificates ({files}) cannot be used: {error}") from None
    return context
