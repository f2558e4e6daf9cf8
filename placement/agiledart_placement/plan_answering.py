"""Answer to a planner's question: a strategy's search within the question's time, or a refusal in words."""

from collections.abc import Callable
from dataclasses import replace

import msgspec

from agiledart_kernel.errors import AgileDartError
from agiledart_placement.evaluation.evaluator import evaluate
from agiledart_placement.files.network_file import read_network
from agiledart_placement.files.result_file import PLACEMENT_FORMAT, read_start
from agiledart_placement.files.topology_file import joined_request, read_topology
from agiledart_placement.integer_programme.odp import Odp
from agiledart_placement.plan_question import MAX_SECONDS, PlanAnswer, PlanQuestion
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement
from agiledart_placement.problem.strategy import PlacementStrategy
from agiledart_placement.registry import offline_strategy


def answer_question(question: PlanQuestion, clock: Callable[[], float]) -> PlanAnswer:
    """Return the placement that the strategy finds within the time of the question; errors become a refusal."""
    began = clock()
    try:
        answer = _answer(question, began + min(MAX_SECONDS, question.seconds), clock)
    except AgileDartError as error:
        answer = PlanAnswer(refusal=str(error)[:1_000])
    except MemoryError:
        answer = PlanAnswer(refusal=f"{question.strategy} needs more memory than a planner may take")
    except Exception as error:  # noqa: BLE001  a strategy of a package may raise anything
        answer = PlanAnswer(refusal=f"{question.strategy} raised {type(error).__name__}: {error}"[:1_000])
    return msgspec.structs.replace(answer, seconds=round(clock() - began, 6))


def _answer(question: PlanQuestion, end: float, clock: Callable[[], float]) -> PlanAnswer:
    network = read_network(question.network, "network")
    request = joined_request(network, [read_topology(question.topology, "topology")])
    objective = Objective(question.objective)
    problem = Problem(request)
    start = None
    if question.start:
        start = read_start({"format": PLACEMENT_FORMAT, "placement": question.start}, "start", network, problem)
    request = replace(request, objective=objective, start=start, seed=question.seed, time_is_up=lambda: clock() >= end)
    placement: object = _strategy(question.strategy, lambda: end - clock()).place(request)
    if not isinstance(placement, Placement):
        return PlanAnswer(refusal=f"{question.strategy} returned {type(placement).__name__} instead of Placement")
    search = placement.search
    if not placement.nodes:
        return PlanAnswer(status=search.status, refusal=f"{question.strategy} found no placement ({search.status})")
    names = {node: state.name for node, state in network.hosts.items()}
    stages = {stage.stage: stage.name for stage in request.stages}
    where: dict[str, list[str]] = {}
    for (stage, _), node in sorted(placement.nodes.items()):
        where.setdefault(stages[stage], []).append(names[node])
    return PlanAnswer(where, search.status, search.gap, evaluate(problem, placement.nodes, objective).value)


def _strategy(name: str, seconds_left: Callable[[], float]) -> PlacementStrategy:
    """Return a new strategy. Raises ConfigurationError: there is none of this name here, or it cannot be loaded."""
    return Odp(seconds_left=seconds_left) if name == "odp" else offline_strategy(name)
