"""Amounts in use by node while a strategy places one instance after the other."""

from collections.abc import Container, Iterable

from agiledart_placement.evaluation.movable_assignment import over
from agiledart_placement.problem.problem import Problem

PROCESSOR = "cpu"
"""Resource that strategies of Storm treat as soft, or as the load of a node."""


class ResourceUse:
    """Use of the resources of all nodes.

    Attributes:
        use: amounts by node and resource; `instances`: instances by node.
        where: node of each instance; -1: not yet placed.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.use = [list(used) for used in problem.used]
        self.instances = [0] * len(problem.nodes)
        self.where = [-1] * len(problem.instances)
        self._owner: dict[int, int] = {}

    def fits(self, instance: int, node: int, soft: Container[str] = ()) -> bool:
        """Return whether a node has room for an instance in all resources but the soft ones."""
        problem = self.problem
        if problem.request.is_exclusive:
            application = problem.stage_of[instance].application
            if self._owner.get(node, application) != application:
                return False
        return not any(
            name not in soft and amount and over(taken + amount, capacity, problem.limit_share)
            for name, amount, taken, capacity in zip(
                problem.resources, problem.demand[instance], self.use[node], problem.capacity[node], strict=True
            )
        )

    def excess(self, instance: int, node: int) -> float:
        """Return by how much an instance would overload a node, summed over resources."""
        return sum(
            over(taken + amount, capacity, self.problem.limit_share)
            for amount, taken, capacity in zip(
                self.problem.demand[instance], self.use[node], self.problem.capacity[node], strict=True
            )
        )

    def put(self, instance: int, node: int) -> None:
        """Place an instance."""
        self.where[instance] = node
        self.instances[node] += 1
        self._owner.setdefault(node, self.problem.stage_of[instance].application)
        for number, amount in enumerate(self.problem.demand[instance]):
            self.use[node][number] += amount

    def available(self, node: int, resource: int) -> float:
        """Return the amount of a resource that a node may still give."""
        problem = self.problem
        return problem.capacity[node][resource] * problem.limit_share - self.use[node][resource]

    def with_room(self, instance: int, soft: Container[str] = ()) -> list[int]:
        """Return the candidates with room for an instance; without any, those that it would overload least."""
        nodes = self.problem.candidates[instance]
        fitting = [node for node in nodes if self.fits(instance, node, soft)]
        if fitting:
            return fitting
        least = min((self.excess(instance, node) for node in nodes), default=0.0)
        return [node for node in nodes if self.excess(instance, node) <= least + 1e-12]


def in_rounds(problem: Problem, stages: Iterable[int]) -> list[int]:
    """Return all instances: one of each stage in turn, the stages in the given order."""
    stages = list(stages)
    rounds = max((stage.parallelism for stage in problem.stages.values()), default=0)
    return [
        problem.instance_index[stage, index]
        for index in range(rounds)
        for stage in stages
        if index < problem.stages[stage].parallelism
    ]
