"""Metrics as sums over edges, instances and used nodes: the only place where their formulas stand.

Each metric is a sum of: a cost of each edge between two nodes, by its delay, its squared delay, its loss of availability and
whether it is cut; a cost of each instance on its node; a cost of each used node; the response time; the longest latency. An
integer programme, a single move and a whole placement are judged from the same terms.

Source: spec of placement §1 and §5.1.
"""

from collections.abc import Container
from math import inf, log

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.node_id import NodeId
from agiledart_placement.problem.objective import SINGLE, Objective
from agiledart_placement.problem.problem import Problem

SCORE_LATENCY_WEIGHT = 1e-6
"""w_1 of the score: latency decides between placements that are equal otherwise."""


class Terms:
    """Coefficients of a metric, or of a weighted sum of metrics, for one problem. Smaller values are better.

    Attributes:
        cut, delay, square, loss: by edge: cost when its ends are on different nodes; for each ms of delay; for each ms²; for each
            unit of −log availability of its link.
        used: by node: cost when it runs any instance.
        response, latency: factors of the response time in ms, and of the longest latency in ms.
        constant: added to the sum.
    """

    def __init__(self, problem: Problem) -> None:
        edges, nodes = len(problem.edges), len(problem.nodes)
        self.problem = problem
        self.cut, self.delay, self.square, self.loss = ([0.0] * edges for _ in range(4))
        self.host = [0.0] * nodes
        """Cost of each instance, by node."""
        self.load = [0.0] * nodes
        """Cost of a unit of the node's first resource, by node."""
        self.used = [0.0] * nodes
        self.response = self.latency = self.constant = 0.0

    def add(self, other: "Terms", factor: float) -> None:
        """Add `factor` times another metric."""
        for mine, theirs in (
            (self.cut, other.cut),
            (self.delay, other.delay),
            (self.square, other.square),
            (self.loss, other.loss),
            (self.host, other.host),
            (self.load, other.load),
            (self.used, other.used),
        ):
            for number, value in enumerate(theirs):
                if value:
                    mine[number] += factor * value
        self.response += factor * other.response
        self.latency += factor * other.latency
        self.constant += factor * other.constant

    def edge_cost(self, edge: int, u: int, v: int) -> float:
        """Return the cost of an edge whose ends are on nodes `u` and `v`."""
        if u == v:
            return 0.0
        problem = self.problem
        delay = problem.delay[u][v]
        cost = self.cut[edge] + delay * (self.delay[edge] + delay * self.square[edge])
        if self.loss[edge]:
            cost += self.loss[edge] * problem.link_log.get((u, v), 0.0)
        return cost

    def instance_cost(self, instance: int, u: int) -> float:
        """Return the cost of an instance on node `u`."""
        cost = self.host[u]
        if self.load[u]:
            cost += self.load[u] * self.problem.demand[instance][first_resource(self.problem, u)]
        return cost


def metric_terms(problem: Problem, name: str, nodes: Container[NodeId] | None = None) -> Terms:
    """Return the terms of one metric of `SINGLE`; the availability as −log A.

    Args:
        problem, name: the problem, and the name of the metric.
        nodes: those that need a price or watts; None: all.

    Raises:
        ConfigurationError: a node lacks a price or watts; the message names it.
    """
    terms = Terms(problem)
    hosts = list(problem.request.hosts.values())
    if name == "response":
        terms.response = 1.0
    elif name == "availability":
        terms.loss = [1.0] * len(problem.edges)
        terms.host = [-log(state.availability) if state.availability else inf for state in hosts]
    elif name == "traffic":
        terms.cut = [edge.volume for edge in problem.edges]
    elif name == "usage":
        terms.delay = [edge.volume / 1e3 for edge in problem.edges]
    elif name == "energy":
        terms.square = [edge.volume / 1e6 for edge in problem.edges]
    elif name == "score":
        events = sum(edge.events for edge in problem.edges)
        share = 1 / len(problem.edges) if problem.edges else 0.0
        terms.cut = [share + (edge.events / events if events else 0.0) for edge in problem.edges]
        terms.used = [1 / len(hosts)] * len(hosts)
        terms.latency = SCORE_LATENCY_WEIGHT
    elif name == "cost":
        for number, state in enumerate(hosts):
            if nodes is None or state.node in nodes:
                terms.used[number] = _known(problem, number, state.price_per_hour, "price_per_hour")
    else:
        _set_power(problem, terms, nodes)
    return terms


def _set_power(problem: Problem, terms: Terms, nodes: Container[NodeId] | None) -> None:
    for number, state in enumerate(problem.request.hosts.values()):
        if nodes is not None and state.node not in nodes:
            continue
        idle = _known(problem, number, state.watts_idle, "watts_idle")
        span = _known(problem, number, state.watts_busy, "watts_busy") - idle
        terms.used[number] = idle
        if state.resources:
            first = first_resource(problem, number)
            capacity = problem.capacity[number][first]
            if capacity:
                terms.load[number] = span / capacity
                terms.used[number] += span * problem.used[number][first] / capacity


def first_resource(problem: Problem, node: int) -> int:
    """Return the number of the resource that a node names first."""
    return problem.resources.index(next(iter(problem.request.hosts[problem.nodes[node]].resources)))


def _known(problem: Problem, node: int, value: float | None, what: str) -> float:
    if value is None:
        raise ConfigurationError(f"node {problem.names[node]} has no {what}; the objective needs it of every node.")
    return value


def objective_terms(problem: Problem, objective: Objective, ranges: dict[str, tuple[float, float]]) -> Terms:
    """Return the terms of an objective. Of `weighted` they are −F; `ranges`: metric → (best, worst) in minimised form.

    A metric without a range, or with an empty one, is dropped, and the weights of the others grow.
    """
    if objective.name in SINGLE:
        return metric_terms(problem, objective.name)
    terms = Terms(problem)
    used = {n: w for n, w in objective.weights.items() if w and n in ranges and ranges[n][1] - ranges[n][0] > 1e-12}
    total = sum(used.values())
    for name, weight in used.items():
        best, worst = ranges[name]
        share = weight / total / (worst - best)
        terms.add(metric_terms(problem, name), share)
        terms.constant -= share * worst
    return terms


def minimised(name: str, value: float) -> float:
    """Convert a metric as users see it to the form that is minimised, and back: the logarithm of availability turns its sign."""
    return -value if name == "availability" else value
