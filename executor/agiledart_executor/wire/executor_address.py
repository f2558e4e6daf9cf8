"""Address of an executor, as other executors get it: its own port, or its agent's port with a ticket."""

from typing import NamedTuple, Self

from agiledart_kernel.node_id import NodeId
from agiledart_transport.connecting import format_address, parse_address

_AT_AGENT = "agent"


class ExecutorAddress(NamedTuple):
    """Address at which an executor takes data links. Its text is HOST:PORT/ID, with `/agent` behind it for the agent's port.

    Args:
        address: HOST:PORT.
        executor: its own id; at the agent's port it is the ticket, too, for as long as the executor runs.
        at_agent: the port is the agent's, which hands the connection over.
    """

    address: str
    executor: NodeId
    at_agent: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the address that a text names. Raises ValueError."""
        address, _, rest = text.partition("/")
        executor, slash, where = rest.partition("/")
        if slash and where != _AT_AGENT:
            raise ValueError(f'an executor is at HOST:PORT/ID or HOST:PORT/ID/{_AT_AGENT}, got "{text}"')
        return cls(address, NodeId.from_hex(executor), bool(slash))

    def moved_to(self, agent_address: str) -> Self:
        """Return the address of the same executor when its agent is at HOST:PORT now."""
        if self.at_agent:
            return self._replace(address=agent_address)
        (host, _), (_, port) = parse_address(agent_address), parse_address(self.address)
        return self._replace(address=format_address(host, port))

    @property
    def text(self) -> str:
        """Return the text that `parse` reads."""
        return f"{self.address}/{self.executor.hex}{'/' + _AT_AGENT if self.at_agent else ''}"
