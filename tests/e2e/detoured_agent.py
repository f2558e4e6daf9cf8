"""The command line, with one thing changed: the address that an executor announces leads through the test's proxy (`detour`).

With `RELAYS_GO_STRAIGHT` set, relays get the true address: the path between two hosts is cut, not a host's.
"""

import os
import socket
from collections.abc import Iterable

import msgspec

from agiledart_agent import agent
from agiledart_agent.circuits.agent_links import AgentLinks
from agiledart_agent.circuits.relay_service import RelayService
from agiledart_agent.executors import executor_process
from agiledart_agent.executors.executor_listener import ExecutorListener
from agiledart_agent.executors.executor_process import ExecutorProcess
from agiledart_cli.main import main
from agiledart_executor.wire.agent_messages import ExecutorMessage, RequestCompleted
from agiledart_kernel.node_id import NodeId
from tests.e2e.detour import RELAYS_GO_STRAIGHT, VARIABLE

_take = ExecutorListener.take
_address_of = executor_process.address_of
_round: dict[str, str] = {}


def way_round(address: str) -> str:
    """The proxy's address for one; asked for once."""
    if address not in _round:
        with socket.create_connection(("127.0.0.1", int(os.environ[VARIABLE])), 10) as asked:
            asked.sendall(f"{address}\n".encode())
            _round[address] = asked.makefile().readline().strip()
    return _round[address]


def address_of(processes: Iterable[ExecutorProcess], application: str, executor: NodeId) -> str:
    """As the agent does, with the true address."""
    told = _address_of(processes, application, executor)
    return next((true for true, shown in _round.items() if shown == told), told)


def take(listener: ExecutorListener, executor: ExecutorProcess, message: ExecutorMessage) -> None:
    """As the listener does, with another address."""
    if isinstance(message, RequestCompleted) and message.address:
        address, slash, node = message.address.partition("/")
        message = msgspec.structs.replace(message, address=f"{way_round(address)}{slash}{node}")
    _take(listener, executor, message)


if __name__ == "__main__":
    # The agent's own port leads to its executors, too: that way past the proxy is closed, and executors have own ports.
    AgentLinks._door = lambda *_: None  # type: ignore[method-assign]
    AgentLinks.know_tickets = lambda *_: False  # type: ignore[method-assign]
    if not os.environ.get(RELAYS_GO_STRAIGHT):
        RelayService.hands_over = property(lambda _: False)  # type: ignore[assignment,method-assign]
    ExecutorListener.take = take  # type: ignore[method-assign,assignment]
    if os.environ.get(RELAYS_GO_STRAIGHT):
        agent.address_of = address_of  # type: ignore[attr-defined]
    main()
