"""Evaluation of a placement: metrics, value of the objective, violations with amounts. Strategies never judge themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, isinf

from agiledart_kernel.node_id import NodeId
from agiledart_placement.evaluation.movable_assignment import MovableAssignment, over, shares
from agiledart_placement.evaluation.terms import Terms, metric_terms, minimised, objective_terms
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import PlacementRequest

Violation = dict[str, object]
"""A broken constraint: its `kind`, what it concerns, and amounts."""


@dataclass(frozen=True, slots=True)
class PlacementMetrics:
    """Metrics of one placement.

    Attributes:
        response_ms: longest path with execution times.
        availability, log_availability: product over instances and streams; a node with two instances counts twice.
        traffic: bytes/s between nodes; usage: bytes in flight; energy: bytes/s × s².
        nodes_used: nodes with at least one instance.
        score, score_latency_ms, score_nodes, score_edges, score_events: score of Ecker et al. and its parts.
        cost_per_hour, watts: None unless every used node has a price, or watts.
    """

    response_ms: float
    availability: float
    log_availability: float
    traffic: float
    usage: float
    energy: float
    nodes_used: int
    score: float
    score_latency_ms: float
    score_nodes: float
    score_edges: float
    score_events: float
    cost_per_hour: float | None
    watts: float | None

    def value_of(self, metric: str) -> float:
        """Return a metric of `SINGLE` as users see it. Raises ValueError when it is unknown for this placement."""
        value = {
            "response": self.response_ms,
            "availability": self.log_availability,
            "traffic": self.traffic,
            "usage": self.usage,
            "energy": self.energy,
            "score": self.score,
            "cost": self.cost_per_hour,
            "power": self.watts,
        }[metric]
        if value is None:
            raise ValueError(metric)
        return value


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Judgement of one placement.

    Attributes:
        metrics: all metrics.
        violations: broken constraints; empty: the placement is feasible.
        excess: sum of the amounts; see `MovableAssignment`.
        value: of the objective as users see it; of `weighted` F.
    """

    metrics: PlacementMetrics
    violations: tuple[Violation, ...]
    excess: float
    value: float

    @property
    def is_feasible(self) -> bool:
        """Return whether no constraint is broken."""
        return not self.violations


def evaluate(
    request: PlacementRequest | Problem,
    placement: Mapping[tuple[int, int], NodeId],
    objective: Objective | None = None,
    ranges: dict[str, tuple[float, float]] | None = None,
) -> Evaluation:
    """Return the judgement of a placement.

    Args:
        request: the request, or its arrays.
        placement: (stage, index) → node.
        objective: the aim; None: that of the request, else the score.
        ranges: metric → (best, worst) in minimised form, for `weighted`.

    Raises:
        ConfigurationError: the placement is not complete, or a figure is missing that the objective needs.
    """
    problem = request if isinstance(request, Problem) else Problem(request)
    where = problem.where_of(placement)
    aim = objective or problem.request.objective or Objective("score")
    state = MovableAssignment(problem, Terms(problem), where)
    metrics = _metrics(problem, where, state)
    if aim.name == "weighted":
        given = {name: given_range(name, span) for name, span in aim.ranges.items()}
        terms = objective_terms(problem, aim, {**(ranges or {}), **given})
        value = -MovableAssignment(problem, terms, where).value()
    else:
        metric_terms(problem, aim.name)  # names a node without a price
        value = metrics.value_of(aim.name)
    return Evaluation(metrics, tuple(violations(problem, where, state)), state.excess, value)


def given_range(name: str, span: tuple[float, float]) -> tuple[float, float]:
    """Return a range that a user gave, as (best, worst) in minimised form."""
    low, high = minimised(name, span[0]), minimised(name, span[1])
    return min(low, high), max(low, high)


def _metrics(problem: Problem, where: Sequence[int], state: MovableAssignment) -> PlacementMetrics:
    def linear(name: str) -> float:
        return MovableAssignment(problem, metric_terms(problem, name), where).linear

    edges = problem.edges
    cut = [edge for edge in edges if where[edge.above] != where[edge.below]]
    used = sum(count > 0 for count in state.count)
    events = sum(edge.events for edge in edges)
    latency = state.latency()
    log_availability = -linear("availability") + 0.0
    hosts = list(problem.request.hosts.values())
    on = [state for node, state in enumerate(hosts) if node in set(where)]
    has_price = all(host.price_per_hour is not None for host in on)
    has_watts = all(host.watts_idle is not None and host.watts_busy is not None for host in on)
    score = metric_terms(problem, "score")
    return PlacementMetrics(
        response_ms=state.response(),
        availability=0.0 if isinf(log_availability) else exp(log_availability),
        log_availability=log_availability,
        traffic=linear("traffic"),
        usage=linear("usage"),
        energy=linear("energy"),
        nodes_used=used,
        score=MovableAssignment(problem, score, where).value(),
        score_latency_ms=latency,
        score_nodes=used / len(hosts) if hosts else 0.0,
        score_edges=len(cut) / len(edges) if edges else 0.0,
        score_events=sum(edge.events for edge in cut) / events if events else 0.0,
        cost_per_hour=_of_used(problem, where, "cost") if has_price else None,
        watts=_of_used(problem, where, "power") if has_watts else None,
    )


def _of_used(problem: Problem, where: Sequence[int], name: str) -> float:
    """Return a metric that needs figures of used nodes only."""
    used = {problem.nodes[node] for node in where}
    return MovableAssignment(problem, metric_terms(problem, name, used), where).linear


def violations(problem: Problem, where: Sequence[int], state: MovableAssignment) -> list[Violation]:
    """Return the broken constraints of a placement, with amounts."""
    result: list[Violation] = []
    for node, name in enumerate(problem.names):
        for number, resource in enumerate(problem.resources):
            capacity, use = problem.capacity[node][number], state.use[node][number]
            if over(use, capacity, problem.limit_share):
                limit = capacity * problem.limit_share
                result.append({"kind": "capacity", "node": name, "resource": resource, "used": use, "limit": limit})
    for (u, v), capacity in problem.bandwidth.items():
        use = state.link_use.get((u, v), 0.0)
        if over(use, capacity, problem.limit_share):
            limit = capacity * problem.limit_share
            link = {"from": problem.names[u], "to": problem.names[v]}
            result.append({"kind": "bandwidth", **link, "used": use, "limit": limit})
    for instance, node in enumerate(where):
        label, place = problem.labels[instance], problem.names[node]
        if node not in problem.candidates[instance]:
            result.append({"kind": "candidate", "operator": label, "node": place})
        result += [
            {"kind": "together", "operator": label, "other": problem.labels[other]}
            for other in problem.together[instance]
            if other > instance and where[other] != node
        ]
        for kind, other in problem.apart[instance]:
            if other > instance and shares(problem, kind, where[other], node):
                pair = {"operator": label, "other": problem.labels[other]}
                result.append({"kind": "apart", **pair, "shared": kind, "node": place})
    if problem.request.is_exclusive:
        held: dict[int, dict[int, bool]] = {}
        for instance, node in enumerate(where):
            held.setdefault(node, {})[problem.stage_of[instance].application] = True
        result += [
            {"kind": "exclusive", "node": problem.names[node], "topologies": len(names)}
            for node, names in sorted(held.items())
            if len(names) > 1
        ]
    return result


def shortfalls(problem: Problem) -> list[Violation]:
    """Return constraints that no placement can meet: too little in all, too little on the largest node, no candidate."""
    result: list[Violation] = [
        {"kind": "candidate", "operator": problem.labels[instance], "rule": rule, "node": None}
        for instance, rule in sorted(problem.emptied_by.items())
    ]
    share = problem.limit_share
    for number, resource in enumerate(problem.resources):
        free = [
            capacity[number] * share - used[number]
            for capacity, used in zip(problem.capacity, problem.used, strict=True)
        ]
        needed = sum(demand[number] for demand in problem.demand)
        there = sum(max(0.0, amount) for amount in free)
        if needed > there + 1e-9:
            result.append({"kind": "capacity", "node": None, "resource": resource, "used": needed, "limit": there})
        for group in problem.groups:
            wanted = sum(problem.demand[instance][number] for instance in group)
            common = set.intersection(*(set(problem.candidates[instance]) for instance in group))
            most = max((free[node] for node in sorted(common)), default=0.0)
            if wanted > most + 1e-9:
                names = [problem.labels[instance] for instance in group]
                where = {"operators": names, "resource": resource, "used": wanted, "limit": most}
                result.append({"kind": "capacity", "node": None, **where})
    return result
