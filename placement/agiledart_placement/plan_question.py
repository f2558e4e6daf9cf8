"""Question that a planner process answers, and its answer. Both are plain documents, so that neither side trusts the other.

A planner runs strategies that may take long, need much memory, or come from users' packages. The asking node verifies every answer.

Source: spec of placement §10.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Final

import msgspec

from agiledart_kernel.errors import AgileDartError
from agiledart_placement.evaluation.evaluator import evaluate
from agiledart_placement.files.network_file import read_network
from agiledart_placement.files.result_file import PLACEMENT_FORMAT, read_start
from agiledart_placement.files.topology_file import joined_request, read_topology
from agiledart_placement.integer_programme.odp import Odp
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import Placement
from agiledart_placement.problem.strategy import PlacementStrategy
from agiledart_placement.registry import offline_strategy

MAX_SECONDS: Final = 60.0
"""Longest time for one plan."""

_Text = Annotated[str, msgspec.Meta(max_length=1_000)]


class PlanQuestion(msgspec.Struct, frozen=True, array_like=True):
    """A placement problem.

    Args:
        strategy, objective: by name.
        network, topology: documents of `agiledart place`.
        start: placement now, stage → names of nodes; empty: none.
        seconds: time for the search.
        seed: of its random choices.
    """

    strategy: str
    objective: str
    network: dict[str, Any]
    topology: dict[str, Any]
    start: dict[str, list[str]] = {}
    seconds: float = 10.0
    seed: int = 1


class PlanAnswer(msgspec.Struct, frozen=True, array_like=True):
    """A planner's answer.

    Args:
        placement: stage → names of nodes, in the order of the instances; empty: none.
        status: as of `SearchReport`.
        gap: distance to the bound, as a share; None: unknown.
        value: of the objective, by the planner's own evaluation.
        seconds: that it took.
        refusal: why there is no placement, in words.
    """

    placement: dict[
        Annotated[str, msgspec.Meta(max_length=256)], list[Annotated[str, msgspec.Meta(max_length=256)]]
    ] = {}
    status: Annotated[str, msgspec.Meta(max_length=32)] = ""
    gap: float | None = None
    value: float | None = None
    seconds: float = 0.0
    refusal: _Text = ""


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
