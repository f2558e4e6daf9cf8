"""Baseline that knows whole paths only: each has a record of its own, whatever links it shares with others."""

import math

from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.graph import LinkGraph
from agiledart_shuffle.policy import Journey
from agiledart_shuffle.simple_paths import SimplePaths


class EndToEnd:
    """Policy that takes the path of least LCB, unvisited ones first and in random order.

    Delays are counted in slots, since the bonus would vanish beside milliseconds. τ is the number of the packet, L the number
    of links of the longest path seen.

    Source: [AgileDART] §VII-F, Algorithm 2; [Gai et al. 2012].
    """

    def __init__(self, graph: LinkGraph, source: int, sink: int, random: RandomStream) -> None:
        self._graph = graph
        self._unvisited = SimplePaths(graph, source, sink, random)
        self._paths: list[tuple[int, ...]] = []
        self._delays: list[int] = []
        self._packets: list[int] = []
        self._link_packets = [0] * graph.links
        self._links_most = 1
        self._sent = 0
        self._chosen = -1
        self._delay = 0

    def start_packet(self, slot: int) -> None:
        """Choose the path; see `PathPolicy.start_packet`."""
        self._sent += 1
        self._delay = 0
        fresh = self._unvisited.draw()
        if fresh is not None:
            self._chosen = len(self._paths)
            self._paths.append(fresh)
            self._delays.append(0)
            self._packets.append(0)
            self._links_most = max(self._links_most, len(fresh))
        elif self._paths:
            self._chosen = min(range(len(self._paths)), key=self._bound)

    def next_link(self, journey: Journey, slot: int) -> int | None:
        """Return the next link of the chosen path; None off the path, or when there is none.

        The packet is bound to its path, so `Journey.closed` is not read.
        """
        if self._chosen < 0:
            return None
        tails = self._graph.tails
        return next((link for link in self._paths[self._chosen] if tails[link] == journey.node), None)

    def record(self, link: int, attempts: int, *, arrived: bool) -> None:
        """Add the attempts to the packet's delay; see `PathPolicy.record`."""
        self._delay += attempts

    def end_packet(self) -> None:
        """Add the packet's delay to the record of its path; see `PathPolicy.end_packet`."""
        if self._chosen < 0:
            return
        self._delays[self._chosen] += self._delay
        self._packets[self._chosen] += 1
        for link in self._paths[self._chosen]:
            self._link_packets[link] += 1

    def _bound(self, path: int) -> float:
        visits = sum(self._link_packets[link] for link in self._paths[path])
        return path_bound(self._delays[path], self._packets[path], visits, self._links_most, self._sent)


def path_bound(delays: float, packets: int, link_packets: int, links_most: int, packet: int) -> float:
    """Return the LCB of one path: its mean delay less a bonus that shrinks as its links are used."""
    return delays / packets - math.sqrt((links_most + 1) * math.log(packet) / link_packets)
