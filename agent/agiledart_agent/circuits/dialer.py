"""`Dialer`: how this agent connects to other nodes. It presents the agent's HELLO and a TLS leaf that never expires in use."""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable

from agiledart_agent.circuits.relay_messages import COSTS_FEATURE
from agiledart_agent.identity.identity import Identity
from agiledart_agent.settings import AgentSettings
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.frames import Hello
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.reachability import Reachability
from agiledart_kernel.version import VERSION
from agiledart_node.reaching.dial_rules import host_of, is_private
from agiledart_node.reaching.reachability_messages import PUNCHING_FEATURE, REACHABILITY_FEATURE, TICKETS_FEATURE
from agiledart_transport.circuits import Via
from agiledart_transport.connecting import connect
from agiledart_transport.link import Link
from agiledart_transport.peer_verifier import PeerVerifier
from agiledart_transport.tls_contexts import client_context, load_credentials, server_context

DIAL_BACK_SECONDS = 2.0
"""Time for this agent to dial another one that asks whether it can be reached."""

SEED_SECONDS = 3.0
"""Time to establish a link."""

LEAF_MARGIN_SECONDS = 3 * 86_400
"""Time before the expiry of the current TLS leaf at which a new one replaces it."""


class Dialer:
    """Links from this agent to other nodes.

    Attributes:
        server_tls: for the port that others dial.

    Args:
        verifier: of the peer that answers.
        address: returns the address at which this agent is reached.
        reach: returns how other nodes reach it.
    """

    def __init__(
        self,
        settings: AgentSettings,
        identity: Identity,
        verifier: PeerVerifier,
        address: Callable[[], str],
        reach: Callable[[], Reachability],
    ) -> None:
        self._reach = reach
        self._settings, self._identity, self._verifier, self._address = settings, identity, verifier, address
        self._credentials = identity.credentials()
        self._client_tls: ssl.SSLContext = client_context(self._credentials)
        self.server_tls: ssl.SSLContext = server_context(self._credentials)

    def hello(self, welcome: bytes = b"") -> Hello:
        """Return the HELLO of this agent. `welcome`: the receipt for its receiver."""
        identity, settings = self._identity, self._settings
        return Hello(
            service="overlay",
            features=(REACHABILITY_FEATURE, TICKETS_FEATURE, COSTS_FEATURE, PUNCHING_FEATURE),
            chain=identity.chain,
            incarnation=identity.incarnation,
            name=settings.name,
            address=self._address(),
            zone=settings.zone,
            host=settings.host,
            software=VERSION,
            wall_ms=int(time.time() * 1_000),
            token=identity.token,
            receipt=identity.receipt,
            welcome=welcome,
            reach=self._reach(),
        )

    async def connect(
        self,
        address: str,
        service: str,
        on_frame: Callable[[Link, int, bytes], None],
        on_closed: Callable[[Link, str], None],
        *,
        expect: NodeId | None = None,
        on_echo: Callable[[Link, bytes], None] | None = None,
        via: Via | None = None,
        punched: socket.socket | None = None,
    ) -> Link:
        """Return a link to a service at an address. Raises as `connect` of the transport does."""
        return await connect(
            address,
            service=service,
            context=self._client_tls,
            hello=self.hello(),
            verifier=self._verifier,
            expect=expect,
            on_frame=on_frame,
            on_closed=on_closed,
            on_echo=on_echo,
            via=via,
            punched=punched,
            proxy=self._settings.proxy,
            timeout=SEED_SECONDS,
        )

    async def dial_back(self, link: Link, address: str) -> str:
        """Dial an agent afresh. Return why it did not answer; empty when it did.

        Only an address from which it was seen, or that it gives to all nodes, is dialled: this agent scans no network.
        """
        host, seen = host_of(address), host_of(link.remote)
        if host != seen and (is_private(host) or address != link.peer.hello.address):
            return "private address" if is_private(host) else "another address"
        try:
            async with asyncio.timeout(DIAL_BACK_SECONDS):
                answered = await self.connect(
                    address, "relay", lambda *_: None, lambda *_: None, expect=link.peer.node_id
                )
        except TimeoutError:
            return "no answer"
        except ConnectionRefusedError:
            return "refused"
        except RemoteProtocolError:
            return "another machine"
        except (OSError, ValueError):
            return "unreachable"
        answered.close("done")
        return ""

    def renew_leaf(self) -> None:
        """Present a fresh TLS leaf before the old one expires. Existing links are not touched."""
        if self._credentials.expires - time.time() < LEAF_MARGIN_SECONDS:
            self._credentials = self._identity.credentials()
            for context in (self._client_tls, self.server_tls):
                load_credentials(context, self._credentials)
