"""Rows and columns of optimal placement as a mixed integer programme.

Columns: x (an instance on a node), y (both ends of a pair of instances on two nodes), z (a node is used), w (a node belongs to a
topology), t and l (end of an instance with and without execution times), r and s (their longest).

Source: spec of placement §2, Cardellini et al. Departs: node potentials in place of a row for each path; y is continuous; the
formulation `cuts` adds rows that are valid for all placements and that the paper does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING, Any

from agiledart_placement.evaluation.terms import Terms
from agiledart_placement.problem.problem import Problem

if TYPE_CHECKING:
    import numpy as np

    Numbers = np.ndarray[Any, np.dtype[Any]]

FORMULATIONS = ("cuts", "plain", "standard")


@dataclass(frozen=True, slots=True)
class PairBlock:
    """The y of one ordered pair of instances that exchange rows.

    Attributes:
        above, below: the instances.
        first: number of the first column; the others follow by candidates of `above`, then of `below`.
        edges: numbers of the streams between them, in this direction.
        is_forward: whether rows pass in the order of the operators.
    """

    above: int
    below: int
    first: int
    edges: tuple[int, ...]
    is_forward: bool


class ColumnLayout:
    """Numbers of the columns, for chosen candidates of each instance.

    Attributes:
        x: first column of each instance.
        pairs: blocks of y.
        variables_x, variables_y: their numbers.
        z, w, t, l, r, s: first columns of the others.
        columns: number of all.
    """

    def __init__(self, problem: Problem, candidates: Sequence[Sequence[int]]) -> None:
        self.problem = problem
        self.candidates = [list(nodes) for nodes in candidates]
        self.place = [{node: number for number, node in enumerate(nodes)} for nodes in self.candidates]
        self.x: list[int] = []
        column = 0
        for nodes in self.candidates:
            self.x.append(column)
            column += len(nodes)
        self.variables_x = column
        streams: dict[tuple[int, int], list[int]] = {}
        for number, edge in enumerate(problem.edges):
            streams.setdefault((edge.above, edge.below), []).append(number)
        self.pairs: list[PairBlock] = []
        for (a, b), edges in streams.items():
            is_forward = problem.edges[edges[0]].is_forward
            self.pairs.append(PairBlock(a, b, column, tuple(edges), is_forward))
            column += len(self.candidates[a]) * len(self.candidates[b])
        self.variables_y = column - self.variables_x
        count = len(problem.instances)
        self.applications = 1 + max((stage.application for stage in problem.stage_of), default=0)
        self.z = column
        self.w = self.z + len(problem.nodes)
        self.t = self.w + (self.applications * len(problem.nodes) if problem.request.is_exclusive else 0)
        self.l = self.t + count
        self.r, self.s = self.l + count, self.l + count + 1
        self.columns = self.s + 1


def twins(problem: Problem) -> list[tuple[int, int]]:
    """Return pairs of consecutive instances of one stage that may change places without any difference.

    A present placement tells them apart, and so does a rule that joins instances in pairs.
    """
    if problem.request.start:
        return []
    return [
        (i, i + 1)
        for i, (stage, _) in enumerate(problem.instances[:-1])
        if problem.instances[i + 1][0] == stage and not problem.together[i] and not problem.together[i + 1]
    ]


def with_ordered_twins(problem: Problem, where: Sequence[int], candidates: Sequence[Sequence[int]]) -> list[int]:
    """Return an equal placement in which twins stand in the order of their nodes."""
    ordered = list(where)
    runs: list[list[int]] = []
    for i, j in twins(problem):
        if runs and runs[-1][-1] == i:
            runs[-1].append(j)
        else:
            runs.append([i, j])
    for run in runs:
        place = {node: number for number, node in enumerate(candidates[run[0]])}
        nodes = sorted((ordered[i] for i in run), key=lambda node: place.get(node, len(place)))
        for i, node in zip(run, nodes, strict=True):
            ordered[i] = node
    return ordered


class PlacementProgramme:
    """Mixed integer programme of a problem: rows as sparse triples, costs of columns, bounds.

    Args:
        problem: the problem.
        layout: its columns.
        formulation: `cuts`, `plain` or `standard`.
    """

    def __init__(self, problem: Problem, layout: ColumnLayout, formulation: str) -> None:
        import numpy

        self._np = numpy
        self.problem, self.layout, self.formulation = problem, layout, formulation
        self._rows: list[Numbers] = []
        self._columns: list[Numbers] = []
        self._values: list[Numbers] = []
        self.lower: list[float] = []
        self.upper: list[float] = []
        self._delay = numpy.array([list(row) for row in problem.delay]).reshape(len(problem.nodes), -1)
        self._add_assignments()
        self._add_capacities()
        for block in layout.pairs:
            self._add_pair(block)
        self._add_bandwidths()
        self._add_rules()
        self._add_paths()
        if formulation == "cuts":
            self._add_capacity_cuts()
            self._add_path_cuts()
            self._add_order_of_twins()

    def add(self, columns: Sequence[int] | Numbers, values: Sequence[float] | Numbers, low: float, high: float) -> None:
        """Add a row: low ≤ Σ value · column ≤ high."""
        np = self._np
        self._rows.append(np.full(len(columns), len(self.lower)))
        self._columns.append(np.asarray(columns, dtype=np.int64))
        self._values.append(np.asarray(values, dtype=float))
        self.lower.append(low)
        self.upper.append(high)

    def _grid(self, block: PairBlock) -> Numbers:
        """Return the columns of a block as a matrix: candidates of the upper instance × those of the lower one."""
        layout = self.layout
        shape = len(layout.candidates[block.above]), len(layout.candidates[block.below])
        grid: Numbers = block.first + self._np.arange(shape[0] * shape[1]).reshape(shape)
        return grid

    def _delays(self, block: PairBlock) -> Numbers:
        layout, np = self.layout, self._np
        delays: Numbers = self._delay[np.ix_(layout.candidates[block.above], layout.candidates[block.below])].copy()
        delays[self._same(block)] = 0.0
        return delays

    def _same(self, block: PairBlock) -> Numbers:
        layout, np = self.layout, self._np
        a, b = np.array(layout.candidates[block.above]), np.array(layout.candidates[block.below])
        same: Numbers = a[:, None] == b[None, :]
        return same

    def _add_assignments(self) -> None:
        for first, nodes in zip(self.layout.x, self.layout.candidates, strict=True):
            self.add([first + n for n in range(len(nodes))], [1.0] * len(nodes), 1, 1)

    def _on(self, node: int) -> list[tuple[int, int]]:
        """Return (instance, column) of the x of a node."""
        layout = self.layout
        return [(i, layout.x[i] + place[node]) for i, place in enumerate(layout.place) if node in place]

    def _room(self, node: int, resource: int) -> float:
        problem = self.problem
        return problem.capacity[node][resource] * problem.limit_share - problem.used[node][resource]

    def _add_capacities(self) -> None:
        problem = self.problem
        for node in range(len(problem.nodes)):
            there = self._on(node)
            for resource in range(len(problem.resources)):
                load = [(column, problem.demand[i][resource]) for i, column in there if problem.demand[i][resource]]
                if load:
                    room = self._room(node, resource)
                    self.add([column for column, _ in load], [amount for _, amount in load], -inf, max(room, 0.0))
            for _, column in there:
                if self._uses_z:
                    self.add([self.layout.z + node, column], [1, -1], 0, inf)

    @property
    def _uses_z(self) -> bool:
        objective = self.problem.request.objective
        names = (objective.name, *objective.weights) if objective is not None else ("score",)
        return any(name in ("score", "cost", "power") for name in names)

    def _add_pair(self, block: PairBlock) -> None:
        layout, np = self.layout, self._np
        grid = self._grid(block)
        xa, xb = layout.x[block.above], layout.x[block.below]
        if self.formulation != "standard":
            for p, row in enumerate(grid):
                self.add(np.append(row, xa + p), np.append(np.ones(len(row)), -1.0), 0, 0)
            for q, row in enumerate(grid.T):
                self.add(np.append(row, xb + q), np.append(np.ones(len(row)), -1.0), 0, 0)
            return
        for p, row in enumerate(grid):
            for q, y in enumerate(row):
                self.add([y, xa + p], [1, -1], -inf, 0)
                self.add([y, xb + q], [1, -1], -inf, 0)
                self.add([y, xa + p, xb + q], [1, -1, -1], -1, inf)

    def _add_bandwidths(self) -> None:
        problem, layout = self.problem, self.layout
        for (u, v), bandwidth in problem.bandwidth.items():
            columns, volumes = [], []
            for block in layout.pairs:
                p, q = layout.place[block.above].get(u), layout.place[block.below].get(v)
                if p is not None and q is not None:
                    columns.append(block.first + p * len(layout.candidates[block.below]) + q)
                    volumes.append(sum(problem.edges[e].volume for e in block.edges))
            if columns:
                self.add(columns, volumes, -inf, bandwidth * problem.limit_share)

    def _add_rules(self) -> None:
        problem, layout = self.problem, self.layout
        for i, others in enumerate(problem.together):
            for j in others:
                for u in dict.fromkeys((*layout.candidates[i], *layout.candidates[j])) if i < j else ():
                    mine, theirs = layout.place[i].get(u), layout.place[j].get(u)
                    columns = [layout.x[i] + mine] if mine is not None else []
                    columns += [layout.x[j] + theirs] if theirs is not None else []
                    self.add(columns, [1.0, -1.0][: len(columns)], 0, 0)
        for i, rules in enumerate(problem.apart):
            for kind, j in rules:
                if i < j:
                    self._add_apart(kind, i, j)
        if problem.request.is_exclusive:
            nodes = len(problem.nodes)
            for u in range(nodes):
                for i, column in self._on(u):
                    self.add([layout.w + problem.stage_of[i].application * nodes + u, column], [1, -1], 0, inf)
                owners = [layout.w + a * nodes + u for a in range(layout.applications)]
                self.add(owners, [1.0] * len(owners), -inf, 1)

    def _add_apart(self, kind: str, i: int, j: int) -> None:
        problem, layout = self.problem, self.layout
        group = list(range(len(problem.nodes)))
        if kind != "node":
            group = problem.host_groups if kind == "host" else problem.zone_groups
        columns: dict[int, list[int]] = {}
        for instance in (i, j):
            for node, place in layout.place[instance].items():
                columns.setdefault(group[node], []).append(layout.x[instance] + place)
        for members in columns.values():
            self.add(members, [1.0] * len(members), -inf, 1)

    def _add_paths(self) -> None:
        """Add node potentials: each instance ends after those that feed it, by delay and execution time."""
        problem, layout, np = self.problem, self.layout, self._np
        for first, last, with_execution in ((layout.t, layout.r, True), (layout.l, layout.s, False)):
            if not with_execution and not self._uses_latency:
                continue
            own: list[tuple[Numbers, Numbers]] = []
            for i, nodes in enumerate(layout.candidates):
                times = np.array([problem.execution[i] / problem.speed[u] for u in nodes]) * with_execution
                nonzero = np.nonzero(times)[0]
                own.append((layout.x[i] + nonzero, -times[nonzero]))
                self.add(np.append(own[i][0], first + i), np.append(own[i][1], 1.0), 0, inf)
                self.add([last, first + i], [1, -1], 0, inf)
            for block in layout.pairs:
                if block.is_forward:
                    grid, delays = self._grid(block).ravel(), self._delays(block).ravel()
                    nonzero = np.nonzero(delays)[0]
                    columns = np.concatenate(
                        ([first + block.below, first + block.above], grid[nonzero], own[block.below][0])
                    )
                    self.add(columns, np.concatenate(([1.0, -1.0], -delays[nonzero], own[block.below][1])), 0, inf)

    @property
    def _uses_latency(self) -> bool:
        objective = self.problem.request.objective
        return objective is None or objective.name == "score" or "score" in objective.weights

    def _neighbour_blocks(self) -> Iterator[tuple[int, list[tuple[int, PairBlock]]]]:
        """Yield each instance with (neighbour, block), each neighbour once: several streams of a pair share one."""
        near: list[dict[int, PairBlock]] = [{} for _ in self.problem.instances]
        for block in self.layout.pairs:
            near[block.above].setdefault(block.below, block)
            near[block.below].setdefault(block.above, block)
        for i, blocks in enumerate(near):
            yield i, sorted(blocks.items())

    def _add_capacity_cuts(self) -> None:
        """Add capacity × x: neighbours on the node of an instance need what it leaves of the node's capacity."""
        problem, layout = self.problem, self.layout
        for i, blocks in self._neighbour_blocks():
            for u, place in layout.place[i].items():
                together = [(j, self._both_on(block, u)) for j, block in blocks if u in layout.place[j]]
                for resource in range(len(problem.resources)):
                    left = self._room(u, resource) - problem.demand[i][resource]
                    load = [(column, problem.demand[j][resource]) for j, column in together]
                    load = [(column, amount) for column, amount in load if amount]
                    if sum(amount for _, amount in load) > left >= 0:
                        columns = [*(column for column, _ in load), layout.x[i] + place]
                        self.add(columns, [*(amount for _, amount in load), -left], -inf, 0)

    def _both_on(self, block: PairBlock, u: int) -> int:
        layout = self.layout
        width = len(layout.candidates[block.below])
        return block.first + layout.place[block.above][u] * width + layout.place[block.below][u]

    def _add_path_cuts(self) -> None:
        """Add rows for directed paths: operators that need k + 1 nodes are cut at least k times."""
        problem = self.problem
        after: list[PairBlock | None] = [None] * len(problem.instances)
        for block in self.layout.pairs:
            if block.is_forward and after[block.above] is None:
                after[block.above] = block
        for first in range(len(problem.instances)):
            path: list[PairBlock] = []
            demand = list(problem.demand[first])
            least = self._nodes_needed(demand) - 1
            following = after[first]
            while following is not None:
                block = following
                path.append(block)
                demand = [a + b for a, b in zip(demand, problem.demand[block.below], strict=True)]
                cuts = self._nodes_needed(demand) - 1
                if cuts > least:
                    least = cuts
                    columns = self._np.concatenate([self._grid(b)[~self._same(b)] for b in path])
                    if len(columns):
                        self.add(columns, self._np.ones(len(columns)), cuts, inf)
                following = after[block.below]

    def _add_order_of_twins(self) -> None:
        """Add rows that order instances which may change places, by node: equal placements are not searched again and again."""
        layout, np = self.layout, self._np
        for i, j in twins(self.problem):
            if layout.candidates[i] == layout.candidates[j]:
                count = len(layout.candidates[i])
                rank = np.arange(1.0, count + 1)
                columns = np.concatenate((layout.x[i] + np.arange(count), layout.x[j] + np.arange(count)))
                self.add(columns, np.concatenate((rank, -rank)), -inf, 0)

    def _nodes_needed(self, demand: Sequence[float]) -> int:
        nodes = range(len(self.problem.nodes))
        needed = 1
        for resource, amount in enumerate(demand):
            largest = max(self._room(u, resource) for u in nodes)
            if amount and largest > 0:
                needed = max(needed, ceil(amount / largest - 1e-9))
        return needed

    def costs(self, terms: Terms) -> tuple[Numbers, float]:
        """Return the cost of each column for a metric or an objective, and the constant."""
        np, layout, problem = self._np, self.layout, self.problem
        cost = np.zeros(layout.columns)
        for i, nodes in enumerate(layout.candidates):
            for n, u in enumerate(nodes):
                cost[layout.x[i] + n] = terms.instance_cost(i, u)
        for block in layout.pairs:
            grid, delays, same = self._grid(block), self._delays(block), self._same(block)
            block_cost = np.zeros(grid.shape)
            for e in block.edges:
                block_cost += terms.cut[e] + delays * (terms.delay[e] + delays * terms.square[e])
                if terms.loss[e] and problem.link_log:
                    a, b = layout.candidates[block.above], layout.candidates[block.below]
                    block_cost += terms.loss[e] * np.array([[problem.link_log.get((u, v), 0.0) for v in b] for u in a])
            block_cost[same] = 0.0
            cost[grid] += block_cost
        cost[layout.z : layout.z + len(problem.nodes)] = terms.used
        cost[layout.r], cost[layout.s] = terms.response, terms.latency
        return cost, terms.constant

    def forbidden(self) -> Numbers:
        """Return the columns y of links that never work, which must be 0."""
        layout = self.layout
        dead = {pair for pair, loss in self.problem.link_log.items() if loss == inf}
        columns = [
            block.first + p * len(layout.candidates[block.below]) + q
            for block in layout.pairs
            if dead
            for p, u in enumerate(layout.candidates[block.above])
            for q, v in enumerate(layout.candidates[block.below])
            if (u, v) in dead
        ]
        return self._np.array(columns, dtype=self._np.int64)

    def matrix(self) -> tuple[Numbers, Numbers, Numbers]:
        """Return the rows by columns: starts, row numbers, values."""
        np = self._np
        rows, columns = np.concatenate(self._rows), np.concatenate(self._columns)
        values = np.concatenate(self._values)
        order = np.lexsort((rows, columns))
        starts = np.searchsorted(columns[order], np.arange(self.layout.columns + 1))
        return starts, rows[order], values[order]

    def point(self, where: Sequence[int], ends: Callable[[bool], list[float]]) -> Numbers | None:
        """Return the values of all columns for a placement; None: it uses a node that is no candidate here.

        Args:
            where: node of each instance.
            ends: returns the end of each instance in ms, with or without execution times.
        """
        layout, problem = self.layout, self.problem
        value = self._np.zeros(layout.columns)
        if any(u not in place for u, place in zip(where, layout.place, strict=True)):
            return None
        for i, u in enumerate(where):
            value[layout.x[i] + layout.place[i][u]] = 1
            value[layout.z + u] = 1
            if problem.request.is_exclusive:
                value[layout.w + problem.stage_of[i].application * len(problem.nodes) + u] = 1
        for block in layout.pairs:
            p, q = layout.place[block.above][where[block.above]], layout.place[block.below][where[block.below]]
            value[block.first + p * len(layout.candidates[block.below]) + q] = 1
        count = len(where)
        value[layout.t : layout.t + count] = ends(True)
        value[layout.l : layout.l + count] = ends(False)
        value[layout.r] = max(value[layout.t : layout.t + count], default=0.0)
        value[layout.s] = max(value[layout.l : layout.l + count], default=0.0)
        return value
