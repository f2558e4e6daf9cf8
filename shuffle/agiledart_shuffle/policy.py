"""Contract of a path policy, and the state that a packet carries."""

from collections.abc import Iterable
from typing import Protocol

from agiledart_shuffle.estimates import Estimates


class Journey:
    """State of one packet under way.

    Attributes:
        node: its present node.
        visited: the nodes that it has visited, in order; a policy never sends it to one of them again.
        closed: links that it must not take again: tried too often, or left by turning back.
    """

    __slots__ = ("closed", "node", "visited")

    def __init__(self, source: int) -> None:
        self.node = source
        self.visited: dict[int, None] = {source: None}
        self.closed: dict[int, None] = {}

    def move(self, node: int) -> None:
        """Record that the packet arrived at a node."""
        self.node = node
        self.visited[node] = None

    def backtrack(self, node: int, link: int) -> None:
        """Return the packet upstream to a node, because the link that it took from there led nowhere."""
        self.node = node
        self.closed[link] = None


class PathPolicy(Protocol):
    """Rule that chooses links for the packets of one source and sink, and learns from their outcomes.

    Deterministic apart from its random stream; no call takes longer for a longer history.
    """

    def start_packet(self, slot: int) -> None:
        """Begin a packet that leaves the source in this slot; slots count from 1."""
        ...

    def next_link(self, journey: Journey, slot: int) -> int | None:
        """Return the link to take; None when no eligible link leaves the node, and the packet must go back upstream."""
        ...

    def record(self, link: int, attempts: int, *, arrived: bool) -> None:
        """Record the number of attempts on a link, and whether the packet crossed it or was given up there."""
        ...

    def end_packet(self) -> None:
        """End the packet: it has arrived or is lost."""
        ...


class LinkIndex(Protocol):
    """Rule for the cost of a link, given its counts; the learning policies differ in it."""

    def survey(self, estimates: Estimates) -> None:
        """Take in facts about all links at once; called before all of them are refreshed."""
        ...

    def refresh(self, costs: list[float], links: Iterable[int], estimates: Estimates, slot: int) -> None:
        """Write the present cost of some links in slots, at least 1, into `costs`."""
        ...
