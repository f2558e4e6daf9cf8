"""Links that other executors open to this one: its listener, and the channels whose frames arrive on them."""

import socket
from collections.abc import Callable
from ssl import SSLContext

from agiledart_executor.channels.data_links import DataPort
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.routes.agent_peer_verifier import AgentPeerVerifier
from agiledart_executor.wire.agent_messages import Configure, DataPeerRefused
from agiledart_executor.wire.executor_address import ExecutorAddress
from agiledart_kernel.frames import Hello
from agiledart_transport.connecting import format_address, parse_address
from agiledart_transport.link import ORDINARY_ENDS, Link, LinkHandler
from agiledart_transport.listener import Listener, ListenerLimits, listening_socket
from agiledart_transport.socket_pair import PairEnd
from agiledart_transport.tls_contexts import TlsCredentials, load_credentials, server_context

MAX_LINKS_OF_EXECUTOR = 8
"""Links that another executor may have here: the one in use, the spare ones, and some for links that were cut.

The sum is doubled because its edges may want different paths."""


class AcceptedLinks:
    """Links that this executor has accepted, by the key of their peer.

    Args:
        configuration: of the executor.
        hello: of this executor, at the moment of each link.
        verifier: verifies peers.
        host: of the instances.
        send: sends a message to the agent.

    Attributes:
        port: takes the frames; set before the first link.
        listener: None before the first link: TLS takes 1.5 MB, and an application in one executor has no links.
    """

    def __init__(
        self,
        configuration: Configure,
        hello: Callable[[], Hello],
        verifier: AgentPeerVerifier,
        host: InstanceHost,
        send: Callable[[DataPeerRefused], None],
    ) -> None:
        self._configuration, self._hello, self._verifier = configuration, hello, verifier
        self._host, self._send = host, send
        self._credentials = configuration.credentials
        self._server_tls: SSLContext | None = None
        self._is_open = False
        self._accepted_links: dict[bytes, list[Link]] = {}
        self.port: DataPort | None = None
        self.listener: Listener | None = None

    def renewed(self, credentials: TlsCredentials) -> None:
        """Use renewed credentials for links that come from now on."""
        self._credentials = credentials
        if self._server_tls is not None:
            load_credentials(self._server_tls, credentials)

    async def open(self, *, has_own_port: bool) -> str:
        """Take connections that the agent hands over, and those at a port of this executor's own if it is to have one.

        Return the address for other executors.
        """
        self._is_open = True
        if has_own_port and not (listener := self._made_listener()).address:
            listener.listen(await listening_socket(self._configuration.host, 0))
        return self._address().text

    def _made_listener(self) -> Listener:
        """Return the listener; make it at the first call."""
        if self.listener is None:
            self._server_tls = server_context(self._credentials)
            self.listener = Listener(
                context=self._server_tls,
                hello=lambda _: self._hello(),
                verifier=self._verifier,
                services=("data",),
                on_link=self._accepted,
                on_refused=lambda reason, remote: self._send(DataPeerRefused(reason, remote)),
                limits=ListenerLimits(reserved_for_agents=0),
            )
        return self.listener

    def _address(self) -> ExecutorAddress:
        own, agent_address = self._configuration.node_id, self._configuration.agent_address
        if self.listener is None or not self.listener.address:
            return ExecutorAddress(agent_address, own, at_agent=True)
        host, port = parse_address(agent_address)[0], parse_address(self.listener.address)[1]
        return ExecutorAddress(format_address(host, port), own)

    async def close(self) -> None:
        """Take no more links and end those that are open."""
        self._is_open = False
        if self.listener is not None:
            await self.listener.close()
        for links in tuple(self._accepted_links.values()):
            for link in tuple(links):
                link.abort("leaving")

    def take(self, connection: socket.socket, certificate: bytes = b"") -> None:
        """Take a connection that the agent has accepted for this executor.

        Args:
            certificate: of the executor at the other end of a socket pair; empty: TLS will bring it.
        """
        if not self._is_open:
            connection.close()
        elif certificate:
            self._made_listener().take_pair(PairEnd(connection, certificate))
        else:
            self._made_listener().take(connection)

    def _accepted(self, link: Link) -> LinkHandler:
        assert self.port is not None
        link.cork = self._host.cork
        per_key = self._accepted_links.setdefault(link.peer.grant.key, [])
        per_key.append(link)
        if len(per_key) > MAX_LINKS_OF_EXECUTOR:
            per_key[0].abort("stalled")  # its circuit was cut before the end of the link could arrive
        return LinkHandler(self.port.data, self._accepted_ended, before=self._host.gather, after=self._host.run_woken)

    def _accepted_ended(self, link: Link, reason: str) -> None:
        """Forget a closed link and report a peer's fault; the channels go on when their upstream ends have dialled again."""
        key = link.peer.grant.key
        self._accepted_links[key].remove(link)
        if self.port is not None:
            self.port.ended(link)
        if not self._accepted_links[key]:
            del self._accepted_links[key]
        if reason not in ORDINARY_ENDS:
            self._send(DataPeerRefused(reason, link.remote))
