"""The contract of a path policy, and what a packet carries."""

from collections.abc import Iterable
from typing import Protocol

from agiledart_shuffle.estimates import Estimates


class Journey:
    """One packet under way.

    Attributes:
        node: where it is.
        visited: the nodes that it has been to, in order; a policy never sends it to one of them again.
        closed: links that it shall not take again: tried too often, or left by turning back.
    """

    __slots__ = ("closed", "node", "visited")

    def __init__(self, source: int) -> None:
        self.node = source
        self.visited: dict[int, None] = {source: None}
        self.closed: dict[int, None] = {}

    def move(self, node: int) -> None:
        """It has come to a node."""
        self.node = node
        self.visited[node] = None

    def backtrack(self, node: int, link: int) -> None:
        """It goes back upstream to a node, since the link that it took from there led nowhere."""
        self.node = node
        self.closed[link] = None


class PathPolicy(Protocol):
    """Chooses links for the packets of one source and sink, and learns from what became of them.

    Deterministic but for the random stream it was given; no call takes longer for a longer history.
    """

    def start_packet(self, slot: int) -> None:
        """A packet leaves the source in this slot; slots count from 1."""
        ...

    def next_link(self, journey: Journey, slot: int) -> int | None:
        """The link to take; None when no eligible one leaves the node, and the packet must go back upstream."""
        ...

    def record(self, link: int, attempts: int, *, arrived: bool) -> None:
        """So many attempts were made on a link, and the packet is across or was given up there."""
        ...

    def end_packet(self) -> None:
        """The packet has arrived or is lost."""
        ...


class LinkIndex(Protocol):
    """How dear a link shall look, given its counts: what sets the learning policies apart."""

    def survey(self, estimates: Estimates) -> None:
        """Take in what must be known of all links at once; called before all of them are refreshed."""
        ...

    def refresh(self, costs: list[float], links: Iterable[int], estimates: Estimates, slot: int) -> None:
        """Write the present cost of some links in slots, at least 1, into `costs`."""
        ...
