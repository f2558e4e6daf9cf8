"""Order of the operators of a graph, also of one with cycles.

Source: spec of placement §5.7, Algorithm 3 of Ecker et al. with its errata.
"""

from collections.abc import Iterable, Sequence


def levels(count: int, edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the vertices 0 … count-1 in levels: without cycles every edge leads from an earlier level to a later one.

    Of a cycle the vertex that follows removed sources and has the greatest surplus of outgoing edges goes first.
    """
    down: list[list[int]] = [[] for _ in range(count)]
    up: list[list[int]] = [[] for _ in range(count)]
    for a, b in dict.fromkeys(edges):
        if a != b:
            down[a].append(b)
            up[b].append(a)
    alive = [True] * count
    indegree, outdegree = [len(v) for v in up], [len(v) for v in down]
    follows = [False] * count
    """Vertices with a predecessor that was removed at the front."""
    front: list[list[int]] = []
    back: list[list[int]] = []

    def remove(vertices: Sequence[int], *, at_front: bool) -> None:
        for vertex in vertices:
            alive[vertex] = False
            for below in down[vertex]:
                indegree[below] -= 1
                follows[below] |= at_front
            for above in up[vertex]:
                outdegree[above] -= 1
        (front if at_front else back).append(list(vertices))

    while any(alive):
        if sources := [v for v in range(count) if alive[v] and not indegree[v]]:
            remove(sources, at_front=True)
        elif sinks := [v for v in range(count) if alive[v] and not outdegree[v]]:
            remove(sinks, at_front=False)
        else:
            component = _components(down, alive)[-1]
            entered = [v for v in sorted(component) if follows[v]] or sorted(component)
            remove([max(entered, key=lambda v: (outdegree[v] - indegree[v], -v))], at_front=True)
    return front + back[::-1]


def _components(down: list[list[int]], alive: list[bool]) -> list[list[int]]:
    """Return the strongly connected components of the vertices alive, in reverse topological order (Tarjan, without recursion)."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    is_on_stack = [False] * len(alive)
    result = []
    for root in range(len(alive)):
        if not alive[root] or root in index:
            continue
        work = [(root, 0)]
        while work:
            vertex, position = work.pop()
            if not position:
                index[vertex] = low[vertex] = len(index)
                stack.append(vertex)
                is_on_stack[vertex] = True
            for offset in range(position, len(down[vertex])):
                below = down[vertex][offset]
                if not alive[below]:
                    continue
                if below not in index:
                    work += [(vertex, offset + 1), (below, 0)]
                    break
                if is_on_stack[below]:
                    low[vertex] = min(low[vertex], index[below])
            else:
                if low[vertex] == index[vertex]:
                    cut = stack.index(vertex)
                    component, stack[cut:] = stack[cut:], []
                    for member in component:
                        is_on_stack[member] = False
                    result.append(component)
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[vertex])
    return result
