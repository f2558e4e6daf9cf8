"""Loop-free paths in random order, each drawn once, without a list of all of them."""

import math

from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.graph import LinkGraph

_TRIES = 200
"""Draws that may repeat known paths before a search decides whether another path is left."""


class SimplePaths:
    """Generator of paths from a source to a sink that visit no node twice.

    In a graph without cycles every path is equally likely: paths from each node are counted. In a graph with cycles a path is a
    random walk: at each node it takes any link from which the sink can be reached without visiting a node twice. 350,000 paths
    are common on networks of 144 nodes; a thousand packets see a thousand of them.
    """

    def __init__(self, graph: LinkGraph, source: int, sink: int, random: RandomStream) -> None:
        self._graph, self._source, self._sink, self._random = graph, source, sink, random
        self._counts = _path_counts(graph, sink)
        self._seen: dict[tuple[int, ...], None] = {}
        self._is_exhausted = source == sink or graph.hops_to_go(sink)[source] == math.inf

    def draw(self) -> tuple[int, ...] | None:
        """Return the links of a path not drawn before; None when there is none left."""
        if self._is_exhausted:
            return None
        if self._counts is not None and len(self._seen) >= self._counts[self._source]:
            self._is_exhausted = True
            return None
        for _ in range(_TRIES):
            path = self._walk() if self._counts is None else self._weighted(self._counts)
            if path not in self._seen:
                self._seen[path] = None
                return path
        return self._listed()

    def _weighted(self, counts: list[int]) -> tuple[int, ...]:
        graph, node, path = self._graph, self._source, []
        while node != self._sink:
            left = self._random.index(counts[node])
            for link in graph.leaving[node]:
                left -= counts[graph.heads[link]]
                if left < 0:
                    break
            path.append(link)
            node = graph.heads[link]
        return tuple(path)

    def _walk(self) -> tuple[int, ...]:
        """Return a random path, depth first: a node that was a dead end once counts as one for the rest of this walk."""
        graph, visited = self._graph, {self._source: None}
        path: list[int] = []
        choices = [self._shuffled(self._source)]
        while not path or graph.heads[path[-1]] != self._sink:
            if not choices[-1]:
                choices.pop()
                path.pop()
                continue
            link = choices[-1].pop()
            head = graph.heads[link]
            if head not in visited:
                visited[head] = None
                path.append(link)
                choices.append(self._shuffled(head))
        return tuple(path)

    def _shuffled(self, node: int) -> list[int]:
        links = list(self._graph.leaving[node])
        self._random.shuffle(links)
        return links

    def _listed(self) -> tuple[int, ...] | None:
        """Return a path not drawn yet, by a search from the first one on; so few are left that the search is short."""
        graph = self._graph
        stack: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = [(self._source, (), (self._source,))]
        while stack:
            node, path, visited = stack.pop()
            if node == self._sink:
                if path not in self._seen:
                    self._seen[path] = None
                    return path
                continue
            reach = _reaching(graph, self._sink, dict.fromkeys(visited)) if self._counts is None else None
            for link in graph.leaving[node]:
                head = graph.heads[link]
                if (head in reach) if reach is not None else bool(self._counts and self._counts[head]):
                    stack.append((head, (*path, link), (*visited, head)))
        self._is_exhausted = True
        return None


def _reaching(graph: LinkGraph, sink: int, without: dict[int, None]) -> dict[int, None]:
    """Return the nodes from which the sink can be reached without any of `without`."""
    reaching = {sink: None}
    queue = [sink]
    while queue:
        for link in graph.entering[queue.pop()]:
            tail = graph.tails[link]
            if tail not in reaching and tail not in without:
                reaching[tail] = None
                queue.append(tail)
    return reaching


def _path_counts(graph: LinkGraph, sink: int) -> list[int] | None:
    """Return the number of paths from each node to the sink; None if the nodes that reach it form a cycle."""
    reach = _reaching(graph, sink, {})
    waiting = [0] * graph.nodes
    for node in reach:
        waiting[node] = sum(graph.heads[link] in reach for link in graph.leaving[node] if node != sink)
    counts = [0] * graph.nodes
    counts[sink] = 1
    ready, done = [sink], 0
    while ready:
        head = ready.pop()
        done += 1
        for link in graph.entering[head]:
            tail = graph.tails[link]
            if tail in reach and tail != sink:
                counts[tail] += counts[head]
                waiting[tail] -= 1
                if waiting[tail] == 0:
                    ready.append(tail)
    return counts if done == len(reach) else None
