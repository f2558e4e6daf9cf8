"""One executor process of this node, its instances, and the requests that it has to answer."""

import asyncio
import math
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from agiledart_agent.executors.bare_process import LaunchError
from agiledart_agent.executors.child_process import ChildProcess
from agiledart_agent.executors.executor_watch import ExecutorWatch
from agiledart_agent.executors.shared_program import SharedProgramProcess
from agiledart_connectors.credentials import ProvisionedSecrets
from agiledart_executor.wire.agent_messages import (
    AgentMessage,
    ForceSourceLogs,
    InstanceName,
    Launch,
    LinkOutputs,
    OpenGenerationChannels,
    PreloadSnapshots,
    PrepareStandby,
)
from agiledart_executor.wire.executor_address import ExecutorAddress
from agiledart_executor.wire.handed_connections import CONNECTION
from agiledart_kernel.codec import Codec
from agiledart_kernel.frames import FrameKind, frame
from agiledart_kernel.node_id import NodeId
from agiledart_transport.connecting import format_address, parse_address

TO_EXECUTOR: Codec[AgentMessage] = Codec(AgentMessage)

LAUNCH_SECONDS = 27.0
"""Time for interpreter start, imports of user code and opening of files, on a slow board.

The node waits 30 s, and could not name the place in the code.
"""

MAX_REASONS: Final = 16
"""Different reasons of refusals that one executor may report."""

MAX_REASON_LENGTH: Final = 64


class OwnProcessNeededError(LaunchError):
    """The application cannot start in a shared process; in one of its own it may."""


@dataclass
class ExecutorProcess:
    """One running executor of one application; `shared`: its program in a process with others."""

    application: str
    version: int
    slot: int
    process: ChildProcess
    writer: asyncio.StreamWriter
    instances: list[InstanceName] = field(default_factory=list)
    labels: dict[int, str] = field(default_factory=dict)
    finished: set[InstanceName] = field(default_factory=set)
    launches: dict[int, asyncio.Future[str]] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    address: str = ""
    agent_address: str = ""
    own_node: NodeId = field(default_factory=lambda: NodeId(0))
    reasons: set[str] = field(default_factory=set)
    watch: ExecutorWatch = field(default_factory=ExecutorWatch)
    secrets: ProvisionedSecrets = field(default_factory=ProvisionedSecrets)
    waiting: dict[bytes, list[InstanceName]] = field(default_factory=dict)
    idle_since: float = 0.0
    ending: bool = False
    by_epoch: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    handover: socket.socket | None = None
    requests: int = 0
    loading: int = 0
    pairs: int = 0
    pairs_since: float = -math.inf
    shared: SharedProgramProcess | None = None

    def address_at(self, claimed: str) -> str:
        """Return where it takes data links: at its agent's port, or at a port that it chooses; empty: nowhere.

        User code speaks for its executor, and relays lead where this address says.
        """
        try:
            where = ExecutorAddress.parse(claimed)
            port = parse_address(where.address)[1]
        except ValueError:
            return ""
        if where.at_agent:
            return ExecutorAddress(self.agent_address, self.own_node, at_agent=True).text
        own_host = parse_address(self.agent_address)[0]
        return ExecutorAddress(format_address(own_host, port), self.own_node).text if port else ""

    def known_reason(self, reason: str) -> str:
        """Return a reason of a refusal; `other` for those beyond a few: user code may invent any number."""
        if reason not in self.reasons and len(self.reasons) >= MAX_REASONS:
            return "other"
        self.reasons.add(reason)
        return reason[:MAX_REASON_LENGTH]

    @property
    def steps(self) -> str:
        """Names of the stages whose instances run here, for messages: a crash was in one of them."""
        return ", ".join(label for _, label in sorted(self.labels.items())) or "user code"

    def send(self, message: AgentMessage) -> None:
        """Queue a message to the executor. Nothing happens when it is gone."""
        if not self.writer.is_closing():
            self.writer.write(frame(FrameKind.CONTROL, TO_EXECUTOR.encode(message)))

    def hand(self, packet: bytes, connection: socket.socket) -> bool:
        """Hand a connection over to the process. Return False when it takes none now. The caller closes its own copy."""
        if self.handover is None:
            return False
        try:
            socket.send_fds(self.handover, [packet], [connection.fileno()])
        except OSError:
            return False
        return True

    def take(self, connection: socket.socket) -> bool:
        """Hand over a connection from the agent's port, and close it here. If the process takes none now, return False."""
        if not self.hand(CONNECTION, connection):
            return False
        connection.close()
        return True

    async def ask(
        self,
        message: Callable[
            [int],
            Launch | LinkOutputs | ForceSourceLogs | OpenGenerationChannels | PreloadSnapshots | PrepareStandby,
        ],
        seconds: float = LAUNCH_SECONDS,
    ) -> str:
        """Send a request that loads or links, and wait for the answer. Raises `LaunchError`."""
        self.requests += 1
        self.loading += 1
        request = self.requests
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.launches[request] = answer
        self.send(message(request))
        try:
            return await asyncio.wait_for(answer, seconds)
        except TimeoutError:
            place = await self.watch.ask()
            where = f"; it is at {place}" if place else ""
            raise LaunchError(f"user code did not start within {seconds:.0f} s{where}") from None
        finally:
            self.launches.pop(request, None)

    def end_texts(self, code: int, reason: str) -> tuple[str, str]:
        """Return how it ended, and why its instances are lost. `reason`: of the end of its pair; empty: unknown."""
        if self.shared is None:
            ended = self.watch.ended(code)
            return ended, self.watch.reason or f"the process of {self.steps} {reason or ended}"
        if (end := self.shared.end) is not None:
            return end.text, end.why_lost(self.application, self.steps)
        ended = "ended, and the process that it shares with other applications goes on"
        return ended, f"the executor of {self.steps} {reason or ended}"

    def remove(self, name: InstanceName) -> None:
        """Remove an instance that is gone. A process without instances is kept for a while."""
        if name in self.instances:
            self.instances.remove(name)
        if not self.instances:
            self.idle_since = asyncio.get_running_loop().time()


def address_of(processes: Iterable[ExecutorProcess], application: str, executor: NodeId) -> str:
    """Return HOST:PORT of an executor of this application by its own id; empty: there is none here."""
    for process in processes:
        if process.application == application and process.own_node == executor and process.address:
            return ExecutorAddress.parse(process.address).address
    return ""


def hand_over(processes: Iterable[ExecutorProcess], executor: NodeId, connection: socket.socket) -> bool:
    """Hand a connection over to an executor by its own id. Return False when there is none, or it takes none now."""
    return any(process.own_node == executor and process.take(connection) for process in processes)
