"""The ways of one executor to all others: who opens links, and by way of whom."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from agiledart_dataflow.plan.paths import DIRECT, Paths, named
from agiledart_executor.asking_judge import AskingJudge
from agiledart_executor.host import InstanceHost
from agiledart_executor.messages import AskWay, Configure, Way
from agiledart_executor.routes.asking_ways import AskingWays
from agiledart_executor.routes.data_way import DataWay
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.frames import Hello
from agiledart_kernel.limits import HELLO_TIMEOUT_SECONDS
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.randomness import RandomStream
from agiledart_transport.circuits import Via
from agiledart_transport.contexts import Credentials, client_context, load_credentials
from agiledart_transport.detour import direct_or_around
from agiledart_transport.framed import Link
from agiledart_transport.links import connect

DIAL_TRIES = 4
"""Attempts to reach an executor that said it listens; each waits for some seconds."""

HEAD_START = 0.3
"""Of the time that a dial has, for the direct way alone."""


class Connect(Protocol):
    """Opens a link to an executor, by way of a relay or directly."""

    async def __call__(self, where: str, paths: Paths, timeout: float, via: Via | None = None) -> Link:
        """Raises OSError, RemoteProtocolError."""
        ...


class Ways:
    """Opened when a channel needs one, and shared by all channels whose edges may go the same ways.

    Args:
        configuration, hello, judge: who this executor is, what it says of itself, and who judges others.
        host: of the instances.
        tell: asks the agent.
        on_frame: what comes back over links.
        no_way: told of a way that has not worked for the whole patience, and why.
    """

    def __init__(
        self,
        configuration: Configure,
        hello: Hello,
        judge: AskingJudge,
        host: InstanceHost,
        tell: Callable[[AskWay], None],
        on_frame: Callable[[Link, int, bytes], None],
        no_way: Callable[[DataWay, str], None],
    ) -> None:
        self._configuration, self._hello, self._judge, self._host = configuration, hello, judge, host
        self._on_frame, self._no_way = on_frame, no_way
        self._asking = AskingWays(tell)
        self._tls = client_context(configuration.credentials)  # `renewed` loads others
        self._opening: dict[tuple[str, Paths], asyncio.Task[DataWay]] = {}
        self._ways: dict[tuple[str, Paths], DataWay] = {}

    def renewed(self, hello: Hello, credentials: Credentials) -> None:
        """What this executor shows on links to come."""
        self._hello = hello
        load_credentials(self._tls, credentials)

    def answered(self, way: Way) -> None:
        """The agent's word."""
        self._asking.answered(way)

    def look(self) -> None:
        """Look at all; the owner calls this now and then."""
        for way in self._ways.values():
            way.look()

    def close(self) -> None:
        """Try no more."""
        for way in self._ways.values():
            way.close()

    async def to(self, where: str, node: NodeId, paths: Paths) -> DataWay:
        """The way to the executor at `host:port/id` on this node, opened once; raises OperationFailed."""
        key = where, paths
        if key not in self._opening:
            self._opening[key] = asyncio.create_task(self._open(where, node, paths))
        try:
            return await asyncio.shield(self._opening[key])
        except (OSError, ValueError, RemoteProtocolError) as error:
            self._opening.pop(key, None)
            raise OperationFailed(f"no data link to {where.partition('/')[0]}: {error}") from None

    async def _open(self, where: str, node: NodeId, paths: Paths) -> DataWay:
        told = self._configuration
        dialler = _Dialler(self._connect, self._asking, where, node, paths)
        began, link = time.monotonic_ns(), await dialler.first()
        way = DataWay(
            link,
            link.peer.hello.name or link.remote,
            paths,
            dialler,
            told.path_patience,
            RandomStream(told.incarnation, "routes", told.node_id.hex, where),
            self._no_way,
            time.monotonic_ns() - began,
        )
        self._ways[where, paths] = way
        return way

    async def _connect(self, where: str, paths: Paths, timeout: float, via: Via | None = None) -> Link:
        address, _, node = where.partition("/")
        key = where, paths
        link = await connect(
            address,
            service="data",
            context=self._tls,
            hello=self._hello,
            judge=self._judge,
            expect=NodeId.from_hex(node) if node else None,
            on_frame=self._on_frame,
            on_closed=lambda link, reason: self._with(key, lambda way: way.closed(link, reason)),
            on_echo=lambda link, body: self._with(key, lambda way: way.echoed(link, body)),
            on_writable=lambda _: self._host.wake_all(),
            before=self._host.gather,
            after=self._host.turn,
            via=via,
            timeout=timeout,
        )
        link.cork = self._host.cork
        return link

    def _with(self, key: tuple[str, Paths], call: Callable[[DataWay], None]) -> None:
        """Tell a way about one of its links."""
        if (way := self._ways.get(key)) is not None:
            call(way)


class _Dialler:
    """Opens links to one executor."""

    def __init__(self, connect_to: Connect, asking: AskingWays, where: str, node: NodeId, paths: Paths) -> None:
        self._connect, self._asking, self._where, self._node, self._paths = connect_to, asking, where, node, paths

    async def directly(self, timeout: float) -> Link:
        """See `Dialler`."""
        return await self._connect(self._where, self._paths, timeout)

    async def ways(self, most: int, avoid: tuple[str, ...], doubted: tuple[str, ...]) -> tuple[Via, ...]:
        """See `Dialler`."""
        executor = NodeId.from_hex(self._where.partition("/")[2])
        return await self._asking.ask(self._node, executor, most, avoid, named(self._paths), doubted)

    async def via(self, via: Via, timeout: float) -> Link:
        """See `Dialler`."""
        return await self._connect(self._where, self._paths, timeout, via)

    async def first(self) -> Link:
        """Dial until it works: on a small board many processes start at once, and some answer late."""
        for left in range(DIAL_TRIES - 1, -1, -1):
            try:
                return await self._first(HELLO_TIMEOUT_SECONDS)
            except OSError:
                if not left:
                    raise
        raise AssertionError("unreachable")

    async def _first(self, timeout: float) -> Link:
        """Directly, or by way of others when nothing comes back and that will do."""

        async def direct() -> Link:
            return await self.directly(timeout)

        async def around() -> Link:
            async with asyncio.timeout(timeout):
                (via, *_) = await self.ways(1, (), ())
                return await self.via(via, timeout)

        if named(self._paths):
            return await around()
        if self._paths == (DIRECT,):
            return await direct()
        return await direct_or_around(direct, around, HEAD_START * timeout)
