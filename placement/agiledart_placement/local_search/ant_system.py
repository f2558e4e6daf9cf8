"""Ant system: ants choose nodes by pheromone and by a local preference; good placements leave more pheromone.

Source: spec of placement §5.4, Ecker et al. Departs: the paper prints no parameters; those here are the project's.
"""

from dataclasses import dataclass

from agiledart_kernel.randomness import RandomStream
from agiledart_placement.evaluation.evaluator import violations
from agiledart_placement.evaluation.movable_assignment import MovableAssignment, over
from agiledart_placement.evaluation.terms import Terms
from agiledart_placement.local_search.hill_climbing import Clock, terms_of
from agiledart_placement.local_search.move_table import common_candidates, is_better
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement, PlacementRequest, SearchReport

VIOLATION = 10_000.0
"""Added to an ant's score for each violation."""


@dataclass(frozen=True, slots=True)
class AntSettings:
    """Parameters of an ant system.

    Args:
        ants: of one iteration.
        alpha, beta: exponents of pheromone and preference.
        retained: share of the pheromone that stays; ρ of the paper.
        deposit: pheromone of an ant with score 1; Q.
        initial, least: pheromone at the start, and the least one.
        start_deposits: times that the present placement is deposited.
        iterations, stall: most iterations, and most of them without improvement.
    """

    ants: int = 10
    alpha: float = 1.0
    beta: float = 2.0
    retained: float = 0.8
    deposit: float = 1.0
    initial: float = 1.0
    least: float = 0.05
    start_deposits: float = 5.0
    iterations: int = 100
    stall: int = 25


class AntColony:
    """Pheromone of one problem. A unit is one instance, or all that must share a node."""

    def __init__(self, problem: Problem, terms: Terms, settings: AntSettings, random: RandomStream) -> None:
        self._problem, self._terms, self._settings, self._random = problem, terms, settings, random
        self.units = problem.groups
        self.candidates = [common_candidates(problem, unit) for unit in self.units]
        self.pheromone = [dict.fromkeys(nodes, settings.initial) for nodes in self.candidates]
        self._unit_of = {instance: number for number, unit in enumerate(self.units) for instance in unit}
        self._near = [self._neighbours(number) for number in range(len(self.units))]
        self._demand = [
            [sum(problem.demand[i][n] for i in unit) for n in range(len(problem.resources))] for unit in self.units
        ]
        self.evaluations = 0

    def _neighbours(self, number: int) -> tuple[int, ...]:
        edges = (self._problem.edges[e] for i in self.units[number] for e in self._problem.touching[i])
        ends = dict.fromkeys(self._unit_of[end] for edge in edges for end in (edge.above, edge.below))
        return tuple(unit for unit in ends if unit != number)

    def preference(self, unit: int, node: int, at: list[int], use: list[list[float]], used: list[int]) -> float:
        """Return η: 2 for a neighbour on the node, 2 for a node in use, ½ for each resource that would be overloaded.

        Args:
            unit, node: a unit, and a node for it.
            at: node of each unit; -1: not yet placed.
            use: amounts in use by node and resource.
            used: units on each node.
        """
        problem, eta = self._problem, 1.0
        for other in self._near[unit]:
            if at[other] == node:
                eta = 2.0
                break
        if used[node]:
            eta *= 2.0
        for amount, taken, capacity in zip(self._demand[unit], use[node], problem.capacity[node], strict=True):
            if amount and over(taken + amount, capacity, problem.limit_share):
                eta *= 0.5
        return eta

    def ant(self) -> list[int]:
        """Return the placement of one ant, as node of each unit."""
        settings, random, problem = self._settings, self._random, self._problem
        order = list(range(len(self.units)))
        random.shuffle(order)
        at = [-1] * len(order)
        use = [list(used) for used in problem.used]
        used = [0] * len(problem.nodes)
        owner: dict[int, int] = {}
        for unit in order:
            nodes = self.candidates[unit]
            if problem.request.is_exclusive:
                mine = problem.stage_of[self.units[unit][0]].application
                nodes = tuple(node for node in nodes if owner.get(node, mine) == mine) or nodes
            trail, weights = self.pheromone[unit], []
            for node in nodes:
                eta = self.preference(unit, node, at, use, used)
                pheromone = trail[node] if settings.alpha == 1 else trail[node] ** settings.alpha
                weights.append(pheromone * (eta * eta if settings.beta == 2 else eta**settings.beta))
            left = random.uniform() * sum(weights)
            chosen = nodes[-1]
            for node, weight in zip(nodes, weights, strict=True):
                left -= weight
                if left < 0:
                    chosen = node
                    break
            at[unit] = chosen
            used[chosen] += 1
            owner.setdefault(chosen, problem.stage_of[self.units[unit][0]].application)
            for n, amount in enumerate(self._demand[unit]):
                use[chosen][n] += amount
        return at

    def assignment(self, at: list[int]) -> MovableAssignment:
        """Return an ant's placement with its excess and value."""
        self.evaluations += 1
        where = [0] * len(self._problem.instances)
        for unit, node in enumerate(at):
            for instance in self.units[unit]:
                where[instance] = node
        return MovableAssignment(self._problem, self._terms, where)

    def update(self, ants: list[tuple[list[int], float]]) -> None:
        """Let pheromone evaporate and add that of these ants: placement and score of each."""
        settings = self._settings
        for trail in self.pheromone:
            for node in trail:
                trail[node] *= settings.retained
        for at, score in ants:
            for unit, node in enumerate(at):
                self.pheromone[unit][node] += settings.deposit / score
        for trail in self.pheromone:
            for node, amount in trail.items():
                if amount < settings.least:
                    trail[node] = settings.least

    def deposit_start(self, where: list[int]) -> None:
        """Deposit the pheromone of the present placement."""
        for number, unit in enumerate(self.units):
            if where[unit[0]] in self.pheromone[number]:
                self.pheromone[number][where[unit[0]]] += self._settings.start_deposits


def search(
    problem: Problem, terms: Terms, time_is_up: Clock, settings: AntSettings | None = None
) -> tuple[MovableAssignment, int]:
    """Return the best placement of an ant system, and the number of placements judged."""
    settings = settings or AntSettings()
    colony = AntColony(problem, terms, settings, RandomStream(problem.request.seed, "ant_system"))
    best: MovableAssignment | None = None
    best_rank = (0.0, 0.0)
    if problem.request.start:
        start = problem.where_of(problem.request.start)
        colony.deposit_start(start)
        best = MovableAssignment(problem, terms, start)
        best_rank = best.excess, best.value()
    stalled = 0
    for _ in range(settings.iterations):
        ants = []
        improved = False
        for _ in range(settings.ants):
            at = colony.ant()
            state = colony.assignment(at)
            rank = state.excess, state.value()
            if best is None or is_better(rank, best_rank):
                best, best_rank, improved = state, rank, True
            count = len(violations(problem, state.where, state)) if state.excess else 0
            ants.append((at, rank[1], count))
            if time_is_up():
                assert best is not None
                return best, colony.evaluations
        is_score = terms.latency > 0 and not terms.response
        scores = [value if is_score else _relative(value, best_rank[1]) for _, value, _ in ants]
        colony.update([(at, max(s, 1e-9) + VIOLATION * n) for (at, _, n), s in zip(ants, scores, strict=True)])
        stalled = 0 if improved else stalled + 1
        if stalled >= settings.stall:
            break
    assert best is not None
    return best, colony.evaluations


def _relative(value: float, best: float) -> float:
    """Return 1 for the best value so far and more for others: other objectives than the score may be 0 or negative."""
    return 1.0 + (value - best) / (abs(best) + 1e-12)


class AntSystem:
    """Placement strategy that lets ants look for good placements.

    Args:
        settings: parameters.
    """

    keeps_balance = False

    def __init__(self, settings: AntSettings | None = None) -> None:
        self._settings = settings

    def place(self, request: PlacementRequest) -> Placement:
        """Return a node for every instance; see `PlacementStrategy.place`."""
        problem = Problem(request)
        if not problem.instances:
            return problem.placement(())
        best, evaluations = search(problem, terms_of(problem), request.time_is_up, self._settings)
        return problem.placement(best.where, SearchReport(evaluations=evaluations))
