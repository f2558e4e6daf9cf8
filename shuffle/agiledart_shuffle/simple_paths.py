"""Loop-free paths in random order, each drawn once, without listing them all."""

import math

from agiledart_kernel.randomness import RandomStream
from agiledart_shuffle.graph import LinkGraph

_TRIES = 200
"""Draws that may bring known paths before a listing decides whether any other is left."""


class SimplePaths:
    """Paths from a source to a sink without a node twice.

    In a graph without cycles each is as likely as any other: paths from each node are counted. In one with cycles a path is a
    walk that at each node takes any of the links from which the sink can be reached without a node twice. 350,000 paths are
    common on networks of 144 nodes; a thousand packets see a thousand of them.
    """

    def __init__(self, graph: LinkGraph, source: int, sink: int, random: RandomStream) -> None:
        self._graph, self._source, self._sink, self._random = graph, source, sink, random
        self._counts = _path_counts(graph, sink)
        self._seen: dict[tuple[int, ...], None] = {}
        self._is_exhausted = source == sink or graph.hops_to_go(sink)[source] == math.inf

    def draw(self) -> tuple[int, ...] | None:
        """The links of a path not drawn before; None when there is none left."""
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
        """Depth first, links in random order: a node that led nowhere once leads nowhere for the rest of this walk."""
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
        """A path not seen yet, by looking through them from the first on; with so few left there are few to look through."""
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
    """Nodes from which the sink can be reached over none of these."""
    found = {sink: None}
    queue = [sink]
    while queue:
        for link in graph.entering[queue.pop()]:
            tail = graph.tails[link]
            if tail not in found and tail not in without:
                found[tail] = None
                queue.append(tail)
    return found


def _path_counts(graph: LinkGraph, sink: int) -> list[int] | None:
    """How many paths lead from each node to the sink; None for a graph with a cycle among the nodes that reach it."""
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
