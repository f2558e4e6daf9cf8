"""Lower bounds of the response time that hold for every placement."""

from math import inf

from agiledart_placement.problem.problem import Problem


def longest_execution(problem: Problem) -> float:
    """Return the longest path of least execution times, which no placement shortens, in ms."""
    return max(_execution_before(problem), default=0.0)


def least_response(problem: Problem) -> float:
    """Return a lower bound of the response time in ms, at least `longest_execution`.

    When all pinned operators are on one node that has no room for all operators between them, one of these runs elsewhere, and
    rows travel there and back; delays of a route over other nodes may be shorter than the direct one.
    """
    bound = longest_execution(problem)
    homes = dict.fromkeys(nodes[0] for nodes in problem.candidates if len(nodes) == 1)
    if len(homes) != 1:
        return bound
    (home,) = homes
    pinned = [len(nodes) == 1 for nodes in problem.candidates]
    begins, ends = _reached(problem, pinned, downward=True), _reached(problem, pinned, downward=False)
    between = [i for i in range(len(pinned)) if pinned[i] or (begins[i] and ends[i])]
    if _fit(problem, between, home):
        return bound
    there, back = _routes(problem, home, outward=True), _routes(problem, home, outward=False)
    before, after = _execution_before(problem), _execution_after(problem)
    detours = [
        before[i] + after[i] + there[u] + back[u]
        for i in between
        if not pinned[i]
        for u in problem.candidates[i]
        if u != home
    ]
    return max(bound, min(detours, default=bound))


def _fit(problem: Problem, instances: list[int], node: int) -> bool:
    return all(
        sum(problem.demand[i][n] for i in instances)
        <= problem.capacity[node][n] * problem.limit_share - problem.used[node][n] + 1e-9
        for n in range(len(problem.resources))
    ) and all(node in problem.candidates[i] for i in instances)


def _reached(problem: Problem, pinned: list[bool], *, downward: bool) -> list[bool]:
    """Return which instances come after a pinned one, or before one, along edges that lead forward."""
    reached = list(pinned)
    if downward:
        for i in problem.order:
            reached[i] = reached[i] or any(reached[j] for j in problem.forward_above[i])
        return reached
    for i in reversed(problem.order):
        if reached[i]:
            for j in problem.forward_above[i]:
                reached[j] = True
    return reached


def _routes(problem: Problem, home: int, *, outward: bool) -> list[float]:
    """Return the least delay of a route between `home` and every node (Dijkstra)."""
    count, delay = len(problem.nodes), problem.delay
    least, done = [inf] * count, [False] * count
    least[home] = 0.0
    for _ in range(count):
        u = min((v for v in range(count) if not done[v]), key=lambda v: least[v])
        done[u] = True
        for v in range(count):
            length = least[u] + (delay[u][v] if outward else delay[v][u])
            if length < least[v]:
                least[v] = length
    return least


def _fastest(problem: Problem, instance: int) -> float:
    return problem.execution[instance] / max(problem.speed[u] for u in problem.candidates[instance])


def _execution_before(problem: Problem) -> list[float]:
    """Return for each instance the longest path of least execution times that ends with it."""
    ends = [0.0] * len(problem.instances)
    for i in problem.order:
        ends[i] = max((ends[j] for j in problem.forward_above[i]), default=0.0) + _fastest(problem, i)
    return ends


def _execution_after(problem: Problem) -> list[float]:
    """Return for each instance the longest path of least execution times that begins behind it."""
    after = [0.0] * len(problem.instances)
    for i in reversed(problem.order):
        for j in problem.forward_above[i]:
            after[j] = max(after[j], after[i] + _fastest(problem, i))
    return after
