"""The same mesh for programs that run an event loop: each method is awaited, each iterator is asynchronous."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, ParamSpec, TypeVar

from agiledart_control.mesh_client import Application, Document, LoggedLine, MeshClient, TappedRow
from agiledart_node.wire.commands import RequestedParallelism

if TYPE_CHECKING:
    from agiledart_dataflow.graph.topology import Topology

Row = TypeVar("Row")
P = ParamSpec("P")
T = TypeVar("T")

_END: Final = object()


async def _elsewhere(function: Callable[P, T], *words: P.args, **options: P.kwargs) -> T:
    return await asyncio.to_thread(function, *words, **options)


async def _rows(rows: Iterator[Row]) -> AsyncIterator[Row]:
    """Yield the rows of an iterator that blocks."""
    while (row := await asyncio.to_thread(next, rows, _END)) is not _END:
        yield row  # type: ignore[misc]  # not the end


class AsyncMeshClient:
    """`MeshClient` whose methods are awaited; use it with `async with`.

    A method that is cancelled stops waiting; the agent completes the command.
    """

    def __init__(self, agent: str | None = None, identity: str | None = None) -> None:
        self._agent, self._identity = agent, identity
        self._mesh: MeshClient | None = None

    async def __aenter__(self) -> "AsyncMeshClient":
        self._mesh = await _elsewhere(MeshClient, self._agent, self._identity)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _elsewhere(self._open.close)

    @property
    def _open(self) -> MeshClient:
        if self._mesh is None:
            raise RuntimeError("Open the mesh first:  async with agiledart.connect_async() as mesh:")
        return self._mesh

    async def submit(
        self,
        target: "str | Callable[..., Topology]",
        settings: Mapping[str, object] | None = None,
        *,
        name: str = "",
        parallelism: "int | Mapping[str, RequestedParallelism] | None" = None,
        executors: int = 0,
        delivery: Literal["", "survive", "exactly-once", "at-least-once", "at-most-once"] = "",
        moves: Literal["", "off", "advise", "on", "mopa"] = "",
        placement: str = "",
    ) -> "AsyncApplication":
        """Run a topology on the mesh, and return once it runs; as `MeshClient.submit`."""
        application = await _elsewhere(
            self._open.submit, target, settings, name=name, parallelism=parallelism, executors=executors,
            delivery=delivery, moves=moves, placement=placement,
        )  # fmt: skip
        return AsyncApplication(application)

    async def applications(self) -> "list[AsyncApplication]":
        """Return all applications of the network, also those that have ended."""
        return [AsyncApplication(application) for application in await _elsewhere(self._open.applications)]

    async def application(self, name: str) -> "AsyncApplication":
        """Return the application of this name. Raises `CommandRefusedError` when there is none."""
        return AsyncApplication(await _elsewhere(self._open.application, name))

    async def nodes(self) -> Document:
        """Return the nodes that the agent knows."""
        return await _elsewhere(self._open.nodes)


class AsyncApplication:
    """`Application` whose methods are awaited."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self.name = application.name

    async def status(self) -> Document:
        """Return its state, placement, rates and figures."""
        return await _elsewhere(self._application.status)

    async def wait(self, timeout: float | None = None) -> Document:
        """Return the status after its end, or after `timeout` seconds."""
        return await _elsewhere(self._application.wait, timeout)

    def logs(self, *, follow: bool = False) -> AsyncIterator[LoggedLine]:
        """Yield the lines that its code printed or logged on all nodes; with `follow` also new ones, until it ends."""
        return _rows(self._application.logs(follow=follow))

    def tap(self, step: str, limit: int | None = None) -> AsyncIterator[TappedRow]:
        """Yield a live sample of the rows that leave a step, `limit` at most, until the application ends."""
        return _rows(self._application.tap(step, limit))

    async def scale(self, stage: str, instances: int) -> Document:
        """Change the number of instances of a stage while rows flow."""
        return await _elsewhere(self._application.scale, stage, instances)

    async def move(self, stage: str, node: str) -> Document:
        """Move a stage to another node while rows flow."""
        return await _elsewhere(self._application.move, stage, node)

    async def stop(self, *, now: bool = False) -> Document:
        """Drain the application and return its last status; with `now`, cut it."""
        return await _elsewhere(self._application.stop, now=now)

    async def forget(self) -> None:
        """Remove the ended application from the list, and free its name."""
        await _elsewhere(self._application.forget)
