"""Placement under change: one move updates sums and excess in the order of the degree of the instance that moves."""

from collections.abc import Sequence

from agiledart_placement.evaluation.terms import Terms
from agiledart_placement.problem.problem import Problem

TOLERANCE = 1e-9
"""Share of a capacity by which sums of floats may exceed it."""


class MovableAssignment:
    """Node of every instance, with the value of one objective and the excess over all constraints.

    Excess: Σ max(0, use ÷ capacity − share) over resources of nodes and limited links (capacity 0: the use itself), and 1 for each
    instance outside its candidates, each broken `together_with` or `apart_from`, and each application too many on an exclusive
    node.

    Source: spec of placement §5.2.
    """

    def __init__(self, problem: Problem, terms: Terms, where: Sequence[int]) -> None:
        self.problem, self.terms = problem, terms
        self.where = list(where)
        self.use = [list(used) for used in problem.used]
        self.count = [0] * len(problem.nodes)
        """Instances by node."""
        self.link_use: dict[tuple[int, int], float] = {}
        self._applications: list[dict[int, int]] = [{} for _ in problem.nodes]
        self._allowed = [frozenset(nodes) for nodes in problem.candidates]
        self._limits_links = bool(problem.bandwidth)
        self._is_exclusive = problem.request.is_exclusive
        self.excess = sum(self._node_excess(node) for node in range(len(problem.nodes)))
        self.linear = terms.constant
        """Value without response time and latency."""
        for instance, node in enumerate(self.where):
            self._enter(instance, node)
        for number, edge in enumerate(problem.edges):
            self._add_edge(number, self.where[edge.above], self.where[edge.below], 1.0)
        broken = 0
        for instance in range(len(self.where)):
            broken += self._broken(instance, self.where[instance])
        self.excess += broken / 2  # each pair was counted at both of its ends

    def _node_excess(self, node: int) -> float:
        """Return the excess of a node over its capacities and over one application."""
        problem, excess = self.problem, 0.0
        for use, capacity in zip(self.use[node], problem.capacity[node], strict=True):
            excess += over(use, capacity, problem.limit_share)
        if self._is_exclusive:
            excess += max(0, len(self._applications[node]) - 1)
        return excess

    def _enter(self, instance: int, node: int, sign: int = 1) -> None:
        """Put an instance on a node, or with sign -1 take it away: all that depends on this node alone."""
        problem, terms = self.problem, self.terms
        before = self._node_excess(node)
        use = self.use[node]
        for number, amount in enumerate(problem.demand[instance]):
            use[number] += sign * amount
        if self._is_exclusive:
            application, held = problem.stage_of[instance].application, self._applications[node]
            held[application] = held.get(application, 0) + sign
            if not held[application]:
                del held[application]
        self.excess += self._node_excess(node) - before
        was_used = self.count[node] > 0
        self.count[node] += sign
        if was_used != (self.count[node] > 0):
            self.linear += sign * terms.used[node]
        self.linear += sign * terms.instance_cost(instance, node)
        if node not in self._allowed[instance]:
            self.excess += sign

    def _add_edge(self, edge: int, u: int, v: int, sign: float) -> None:
        if u == v:
            return
        self.linear += sign * self.terms.edge_cost(edge, u, v)
        if self._limits_links and (capacity := self.problem.bandwidth.get((u, v))) is not None:
            use = self.link_use.get((u, v), 0.0)
            share = self.problem.limit_share
            after = use + sign * self.problem.edges[edge].volume
            self.link_use[u, v] = after
            self.excess += over(after, capacity, share) - over(use, capacity, share)

    def _broken(self, instance: int, node: int) -> int:
        """Return how many rules about other instances an instance breaks on a node."""
        problem, where, broken = self.problem, self.where, 0
        for other in problem.together[instance]:
            broken += where[other] != node
        for kind, other in problem.apart[instance]:
            broken += shares(problem, kind, where[other], node)
        return broken

    def move(self, instance: int, node: int) -> None:
        """Move an instance to another node."""
        old = self.where[instance]
        if old == node:
            return
        problem, where = self.problem, self.where
        for number in problem.touching[instance]:
            edge = problem.edges[number]
            self._add_edge(number, where[edge.above], where[edge.below], -1.0)
        has_rules = problem.together[instance] or problem.apart[instance]
        if has_rules:
            self.excess += self._broken(instance, node) - self._broken(instance, old)
        self._enter(instance, old, -1)
        where[instance] = node
        self._enter(instance, node)
        for number in problem.touching[instance]:
            edge = problem.edges[number]
            self._add_edge(number, where[edge.above], where[edge.below], 1.0)

    def response(self) -> float:
        """Return the response time in ms: the longest path, with execution times and delays of edges that lead forward."""
        return max(path_ends(self.problem, self.where, with_execution=True), default=0.0)

    def latency(self) -> float:
        """Return the longest path of delays in ms, without execution times."""
        return max(path_ends(self.problem, self.where, with_execution=False), default=0.0)

    def value(self) -> float:
        """Return the value of the objective; smaller is better."""
        value = self.linear
        if self.terms.response:
            value += self.terms.response * self.response()
        if self.terms.latency:
            value += self.terms.latency * self.latency()
        return value

    def fresh(self) -> "MovableAssignment":
        """Return the same placement with sums that carry no rounding of earlier moves."""
        return MovableAssignment(self.problem, self.terms, self.where)


def over(use: float, capacity: float, share: float) -> float:
    """Return by how much a use exceeds this share of a capacity, as a share of the capacity; of capacity 0 the use itself."""
    if capacity <= 0:
        return use if use > TOLERANCE else 0.0
    excess = use / capacity - share
    return excess if excess > TOLERANCE else 0.0


def shares(problem: Problem, kind: str, u: int, v: int) -> bool:
    """Return whether two nodes are the same node, on one host, or in one zone."""
    if kind == "node":
        return u == v
    groups = problem.host_groups if kind == "host" else problem.zone_groups
    return groups[u] == groups[v]


def path_ends(problem: Problem, where: Sequence[int], *, with_execution: bool) -> list[float]:
    """Return for each instance the length of the longest path that ends with it, in ms; only edges that lead forward count."""
    delay, above = problem.delay, problem.forward_above
    done = [0.0] * len(where)
    for instance in problem.order:
        node, begin = where[instance], 0.0
        for other in above[instance]:
            u = where[other]
            at = done[other] if u == node else done[other] + delay[u][node]
            if at > begin:
                begin = at
        if with_execution:
            begin += problem.execution[instance] / problem.speed[node]
        done[instance] = begin
    return done
