"""Trial of moves without carrying them out: table of what each unit costs on each node, as long as the others stay.

A unit is one instance, or all instances that must share a node. The change of a single move or of a swap follows from the table
in constant time. Where limited links, rules between operators or exclusive nodes make it depend on more, the move is carried
out and taken back.
"""

from collections.abc import Sequence

from agiledart_placement.evaluation.movable_assignment import MovableAssignment, over
from agiledart_placement.problem.problem import Problem

Moves = tuple[tuple[int, int], ...]
"""Unit and its new node, several at once."""

EPSILON = 1e-12


class MoveTable:
    """Placements near one placement.

    Attributes:
        state: the placement in the middle.
        units: instances of each unit.
        candidates: nodes of each unit.
        evaluations: trials so far.
    """

    def __init__(self, state: MovableAssignment) -> None:
        problem = state.problem
        self.state = state
        self.units = problem.groups
        self.candidates = [common_candidates(problem, unit) for unit in self.units]
        self.evaluations = 0
        self._is_separable = not (
            problem.bandwidth or problem.request.is_exclusive or any(problem.together) or any(problem.apart)
        )
        self._unit_of = {instance: number for number, unit in enumerate(self.units) for instance in unit}
        self._next_to = [
            {self._unit_of[other] for instance in unit for other in _others(problem, instance)} - {number}
            for number, unit in enumerate(self.units)
        ]
        self._table: list[dict[int, float]] = []
        if self._is_separable:
            self._table = [self._row(number) for number in range(len(self.units))]

    def node(self, unit: int) -> int:
        """Return the node of a unit."""
        return self.state.where[self.units[unit][0]]

    def _row(self, number: int) -> dict[int, float]:
        """Return the linear cost of a unit of one instance by node, while all others stay."""
        (instance,) = self.units[number]
        state, terms = self.state, self.state.terms
        problem, where = state.problem, state.where
        ends = [
            (e, where[edge.below] if edge.above == instance else where[edge.above], edge.above == instance)
            for e in problem.touching[instance]
            for edge in (problem.edges[e],)
        ]
        row = {}
        for node in dict.fromkeys((*self.candidates[number], where[instance])):
            cost = terms.instance_cost(instance, node)
            for edge, other, is_above in ends:
                if other != node:
                    cost += terms.edge_cost(edge, node, other) if is_above else terms.edge_cost(edge, other, node)
            row[node] = cost
        return row

    def trial(self, moves: Moves, limit: tuple[float, float]) -> tuple[float, float] | None:
        """Return excess and value after these moves; None: they are not below the limit, another (excess, value)."""
        self.evaluations += 1
        if self._is_separable and (change := self._change(moves)) is not None:
            excess, linear = self.state.excess + change[0], self.state.linear + change[1]
            if _is_above(excess, linear, limit, self.state):
                return None
            if not self.state.terms.latency and not self.state.terms.response:
                return excess, linear
            value = self._with_paths(moves, linear)
        else:
            excess, value = self._carried_out(moves)
        return (excess, value) if is_better((excess, value), limit) else None

    def _change(self, moves: Moves) -> tuple[float, float] | None:
        """Return the change of excess and of the linear value; None: the units of a swap are neighbours."""
        if len(moves) == 2 and moves[1][0] in self._next_to[moves[0][0]]:
            return None
        if len(moves) > 2:
            return None
        problem, state = self.state.problem, self.state
        linear = 0.0
        changes: dict[int, list[float]] = {}
        counts: dict[int, int] = {}
        for unit, node in moves:
            row, old = self._table[unit], self.node(unit)
            linear += row[node] - row[old]
            demand = problem.demand[self.units[unit][0]]
            for place, sign in ((old, -1), (node, 1)):
                into = changes.setdefault(place, [0.0] * len(demand))
                for resource, amount in enumerate(demand):
                    into[resource] += sign * amount
                counts[place] = counts.get(place, 0) + sign
        excess = 0.0
        for place, change in changes.items():
            for use, amount, capacity in zip(state.use[place], change, problem.capacity[place], strict=True):
                if amount:
                    share = problem.limit_share
                    excess += over(use + amount, capacity, share) - over(use, capacity, share)
            before, after = state.count[place], state.count[place] + counts[place]
            if (before > 0) != (after > 0):
                linear += state.terms.used[place] * (1 if after > 0 else -1)
        return excess, linear

    def _with_paths(self, moves: Moves, linear: float) -> float:
        """Return the value with response time and latency, which need the moved placement."""
        state = self.state
        old = [(self.units[unit][0], self.node(unit)) for unit, _ in moves]
        for unit, node in moves:
            state.where[self.units[unit][0]] = node
        value = linear
        if state.terms.response:
            value += state.terms.response * state.response()
        if state.terms.latency:
            value += state.terms.latency * state.latency()
        for instance, node in old:
            state.where[instance] = node
        return value

    def _carried_out(self, moves: Moves) -> tuple[float, float]:
        state = self.state
        before = state.excess, state.linear
        old = [(unit, self.node(unit)) for unit, _ in moves]
        for unit, node in moves:
            for instance in self.units[unit]:
                state.move(instance, node)
        answer = state.excess, state.value()
        for unit, node in reversed(old):
            for instance in self.units[unit]:
                state.move(instance, node)
        state.excess, state.linear = before
        return answer

    def accept(self, moves: Moves) -> None:
        """Carry the moves out."""
        for unit, node in moves:
            for instance in self.units[unit]:
                self.state.move(instance, node)
        self.state = self.state.fresh()
        if self._is_separable:
            touched = dict.fromkeys(unit for unit, _ in moves)
            for unit, _ in moves:
                touched |= dict.fromkeys(sorted(self._next_to[unit]))
            for unit in touched:
                self._table[unit] = self._row(unit)


def _others(problem: Problem, instance: int) -> list[int]:
    edges = (problem.edges[number] for number in problem.touching[instance])
    return [edge.below if edge.above == instance else edge.above for edge in edges]


def common_candidates(problem: Problem, unit: Sequence[int]) -> tuple[int, ...]:
    """Return the nodes that may run all instances of a unit; without any, those of its first instance."""
    common = [node for node in problem.candidates[unit[0]] if all(node in problem.candidates[i] for i in unit)]
    return tuple(common) or problem.candidates[unit[0]]


def is_better(a: tuple[float, float], b: tuple[float, float]) -> bool:
    """Return whether one (excess, value) is better than another: less excess, or as much and less value."""
    if a[0] < b[0] - EPSILON:
        return True
    return a[0] <= b[0] + EPSILON and a[1] < b[1] - EPSILON


def _is_above(excess: float, linear: float, limit: tuple[float, float], state: MovableAssignment) -> bool:
    """Return whether a trial cannot be below the limit, even with paths of length 0."""
    if excess < limit[0] - EPSILON:
        return False
    return excess > limit[0] + EPSILON or linear >= limit[1] - EPSILON
