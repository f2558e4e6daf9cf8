"""Routes of one executor to all others: opens them and dials their links, directly or through relays."""

import asyncio
import time
from collections.abc import Callable
from ssl import SSLContext
from typing import Protocol

from agiledart_dataflow.plan.paths import DIRECT, Paths, named
from agiledart_executor.instances.instance_host import InstanceHost
from agiledart_executor.routes.agent_pairs import AgentPairs
from agiledart_executor.routes.agent_peer_verifier import AgentPeerVerifier
from agiledart_executor.routes.agent_relay_finder import AgentRelayFinder
from agiledart_executor.routes.data_route import DataRoute
from agiledart_executor.wire.agent_messages import Configure, FindRelays, HopFigures, OpenPair, PairRefused, RelaysFound
from agiledart_executor.wire.executor_address import ExecutorAddress
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.frames import Hello
from agiledart_kernel.limits import HELLO_TIMEOUT_SECONDS
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_transport.circuits import Via
from agiledart_transport.connecting import connect
from agiledart_transport.link import Link
from agiledart_transport.relay_fallback import dial_direct_or_relayed
from agiledart_transport.socket_pair import PairEnd
from agiledart_transport.tls_contexts import TlsCredentials, client_context, load_credentials

DIAL_TRIES = 4
"""Attempts to reach an executor that reported that it listens; each waits for some seconds."""

HEAD_START = 0.3
"""Share of a dial's timeout that is for the direct dial alone."""


class Connect(Protocol):
    """Function that opens a link to an executor, directly or through a relay."""

    async def __call__(
        self,
        where: str,
        paths: Paths,
        timeout: float,
        via: Via | None = None,
        pair: PairEnd | None = None,
        address: str = "",
    ) -> Link:
        """Open the link; `address`: the executor's present one, "": that in `where`. Raises OSError, RemoteProtocolError."""
        ...


class DataRoutes:
    """Routes of an executor, opened on demand and shared by all channels whose edges allow the same paths.

    Args:
        configuration: identity and settings of this executor.
        hello: introduction of this executor on each link.
        verifier: verifies peers.
        host: of the instances.
        send: sends a request to the agent.
        on_frame: called with frames that come back over links.
        route_abandoned: called with a route that has not worked for the whole timeout, and the reason.

    Attributes:
        pairs: socket pairs to executors of this node.
    """

    def __init__(
        self,
        configuration: Configure,
        hello: Hello,
        verifier: AgentPeerVerifier,
        host: InstanceHost,
        send: Callable[[FindRelays | OpenPair], None],
        on_frame: Callable[[Link, int, bytes], None],
        route_abandoned: Callable[[DataRoute, str], None],
    ) -> None:
        self._configuration, self._hello, self._verifier, self._host = configuration, hello, verifier, host
        self._on_frame, self._route_abandoned = on_frame, route_abandoned
        self._asking, self.pairs = AgentRelayFinder(send), AgentPairs(send)
        self._credentials = configuration.credentials
        self._tls: SSLContext | None = None  # made at the first dial: it takes 1.5 MB
        self._opening: dict[tuple[str, Paths], asyncio.Task[DataRoute]] = {}
        self._routes: dict[tuple[str, Paths], DataRoute] = {}

    def renewed(self, hello: Hello, credentials: TlsCredentials) -> None:
        """Use renewed credentials on later links."""
        self._hello = hello
        self._credentials = credentials
        if self._tls is not None:
            load_credentials(self._tls, credentials)

    def receive_answer(self, answer: RelaysFound | PairRefused) -> None:
        """Hand the agent's answer to the request that waits for it."""
        if isinstance(answer, PairRefused):
            self.pairs.receive_refusal(answer)
        else:
            self._asking.receive_answer(answer)

    def look(self) -> None:
        """Read the progress of all routes; the owner calls this periodically."""
        for route in self._routes.values():
            route.look()

    def close(self) -> None:
        """Stop all dials."""
        for route in self._routes.values():
            route.close()

    def disconnect(self) -> None:
        """End all links, behind `close`, in a process that goes on."""
        for route in self._routes.values():
            route.disconnect()

    async def to(self, where: str, node: NodeId, paths: Paths) -> DataRoute:
        """Return the route to the executor at an `ExecutorAddress` on a node; it is opened once. Raises OperationFailed."""
        key = where, paths
        if key not in self._opening:
            self._opening[key] = asyncio.create_task(self._open(where, node, paths))
        try:
            return await asyncio.shield(self._opening[key])
        except (OSError, ValueError, RemoteProtocolError) as error:
            self._opening.pop(key, None)
            raise OperationFailed(f"no data link to {where.partition('/')[0]}: {error}") from None

    async def _open(self, where: str, node: NodeId, paths: Paths) -> DataRoute:
        configuration = self._configuration
        pairs = self.pairs if node == configuration.home else None
        dialler = _Dialler(self._connect, self._asking, pairs, where, node, paths)
        began, link = time.monotonic_ns(), await dialler.first()
        route = DataRoute(
            link,
            link.peer.hello.name or link.remote,
            paths,
            dialler,
            configuration.path_timeout,
            RandomStream(configuration.incarnation, "routes", configuration.node_id.hex, where),
            self._route_abandoned,
            time.monotonic_ns() - began,
        )
        self._routes[where, paths] = route
        return route

    async def _connect(
        self,
        where: str,
        paths: Paths,
        timeout: float,
        via: Via | None = None,
        pair: PairEnd | None = None,
        address: str = "",
    ) -> Link:
        executor = ExecutorAddress.parse(where)
        key = where, paths
        if self._tls is None and pair is None:
            self._tls = client_context(self._credentials)
        link = await connect(
            address or executor.address,
            service="data",
            context=self._tls,
            hello=self._hello,
            verifier=self._verifier,
            expect=executor.executor,
            ticket=executor.executor.to_bytes16() if executor.at_agent else b"",
            on_frame=self._on_frame,
            on_closed=lambda link, reason: self._with(key, lambda route: route.closed(link, reason)),
            on_echo=lambda link, body: self._with(key, lambda route: route.echoed(link, body)),
            on_writable=lambda _: self._host.wake_all(),
            before=self._host.gather,
            after=self._host.run_woken,
            via=via,
            pair=pair,
            proxy=self._configuration.proxy,
            timeout=timeout,
        )
        link.cork = self._host.cork
        return link

    def _with(self, key: tuple[str, Paths], call: Callable[[DataRoute], None]) -> None:
        """Call a route about one of its links; ignore links of routes that are not open yet."""
        if (route := self._routes.get(key)) is not None:
            call(route)


class _Dialler:
    """Dialler of links to one executor, which may go through relays that the agent finds.

    `pairs`: of an executor of this node; None: it is on another one.
    """

    def __init__(
        self,
        connect_to: Connect,
        asking: AgentRelayFinder,
        pairs: AgentPairs | None,
        where: str,
        node: NodeId,
        paths: Paths,
    ) -> None:
        self._connect, self._asking, self._pairs = connect_to, asking, pairs
        self._where, self._node, self._paths = where, node, paths
        self._executor = ExecutorAddress.parse(where)

    async def directly(self, timeout: float) -> Link:
        """See `Dialler`. The executor's machine may have another address by now."""
        return await self._directly(timeout, follows=True)

    async def _directly(self, timeout: float, *, follows: bool) -> Link:
        """Dial directly; `follows`: at the address that its agent published last, else at that which the executor reported."""
        if self._pairs is not None and (pair := await self._pairs.open(self._executor.executor, timeout)) is not None:
            return await self._connect(self._where, self._paths, timeout, pair=pair)
        if (published := await self._published_address()) is None:
            raise ConnectionError(f"{self._executor.address} is an address of another network")
        address = self._executor.moved_to(published).address if published and follows else ""
        return await self._connect(self._where, self._paths, timeout, address=address)

    async def relays(self, most: int, avoid: tuple[str, ...], doubted: tuple[str, ...]) -> tuple[Via, ...]:
        """See `Dialler`."""
        executor, direct = self._executor.executor, self._executor.address if self._executor.at_agent else ""
        return await self._asking.ask(self._node, executor, most, avoid, named(self._paths), doubted, direct)

    async def via(self, via: Via, timeout: float) -> Link:
        """See `Dialler`."""
        return await self._connect(self._where, self._paths, timeout, via)

    async def hops(self) -> tuple[HopFigures, ...]:
        """See `Dialler`."""
        return await self._asking.hops(self._node, self._executor.executor, named(self._paths))

    async def _published_address(self) -> str | None:
        """Ask the agent where the executor's node is now, "": unknown; None: its address may be another machine's here."""
        return await self._asking.address(self._node, self._executor.executor)

    async def first(self) -> Link:
        """Dial until a link opens, because many processes start at once on a small board and some answer late."""
        for attempts_left in range(DIAL_TRIES - 1, -1, -1):
            try:
                return await self._first(HELLO_TIMEOUT_SECONDS)
            except OSError:
                if not attempts_left:
                    raise
        raise AssertionError("unreachable")

    async def _first(self, timeout: float) -> Link:
        """Dial directly, and also through a relay when no answer comes and the paths allow one."""

        async def direct() -> Link:
            return await self._directly(timeout, follows=False)

        async def relayed() -> Link:
            async with asyncio.timeout(timeout):
                (via, *_) = await self.relays(1, (), ())
                return await self.via(via, timeout)

        if named(self._paths) or (self._paths != (DIRECT,) and await self._published_address() is None):
            return await relayed()
        if self._paths == (DIRECT,):
            return await direct()
        return await dial_direct_or_relayed(direct, relayed, HEAD_START * timeout)
