"""Conformance of a strategy: the rules that every one keeps, tried on generated problems, in words."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from agiledart.placement.isolation import IsolatedFailure, run_isolated
from agiledart.placement.running import MEMORY_BYTES, PlacementOptions, PlacementResult, place
from agiledart.placement.user_strategies import load_strategy
from agiledart_kernel.randomness import RandomStream
from agiledart_placement.files.network_file import read_network
from agiledart_placement.files.topology_file import joined_request, read_topology
from agiledart_placement.problem.objective import Objective
from agiledart_placement.problem.problem import Problem
from agiledart_placement.problem.request import PlacementRequest

PROBLEMS = 12
LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class ConformanceFinding:
    """Outcome of one rule.

    Attributes:
        rule: the rule in words.
        passed: None: the rule could not be tried, or is no duty.
        detail: the first fault.
    """

    rule: str
    passed: bool | None
    detail: str = ""

    @property
    def word(self) -> str:
        """Return the outcome as a word."""
        return {True: "ok", False: "FAILED", None: "note"}[self.passed]


def generated_request(seed: int, nodes: int = 4, operators: int = 5) -> PlacementRequest:
    """Return a random request that is feasible: pinned ends, general demands, capacities, one or two branches."""
    draw = RandomStream(seed, "conformance")
    network = {
        "format": "agiledart-network/1",
        "nodes": [
            {
                "name": f"n{n}",
                "capacity": {"slots": 2 + draw.index(4), "memory": 400 + draw.index(400)},
                "speed": 0.5 + draw.index(4) / 2,
                "availability": 0.9 + draw.index(10) / 100,
            }
            for n in range(nodes)
        ],
        "links": [
            {"from": f"n{a}", "to": f"n{b}", "delay_ms": 1 + draw.index(40)} for a in range(nodes) for b in range(a)
        ],
    }
    names = [f"o{n}" for n in range(operators)]
    topology = {
        "format": "agiledart-topology/1",
        "operators": [
            {
                "name": name,
                "demand": {"memory": 10 + draw.index(90)},
                "execution_ms": draw.index(10),
                "rate": 50 if number == 0 else 0,
                "selectivity": draw.choice((0.5, 1, 1.5)),
                **({"on": [f"n{draw.index(nodes)}"]} if number in (0, operators - 1) else {}),
            }
            for number, name in enumerate(names)
        ],
        "streams": [{"from": names[draw.index(number)], "to": names[number]} for number in range(1, operators)],
    }
    return joined_request(read_network(network, "generated"), [read_topology(topology, "generated")])


def check_strategy(name: str) -> Iterator[ConformanceFinding]:
    """Yield the outcome of each rule for one strategy.

    Raises:
        ConfigurationError: there is no such strategy, or it cannot be loaded.
    """
    rule = "it returns a Placement within its time limit and raises nothing"
    try:
        answers: Any = run_isolated(_all_results, (name,), LIMIT_S * (PROBLEMS + 5), MEMORY_BYTES)
    except IsolatedFailure as error:
        yield ConformanceFinding(rule, False, str(error))
        return
    results, again, empty, alone = answers
    yield _finding(
        rule,
        (
            f"problem {seed}: {result.skipped or f'{result.seconds:.1f} s of {LIMIT_S:.0f}'}"
            for seed, result in enumerate(results)
            if result.skipped or result.seconds > LIMIT_S + 1
        ),
    )
    yield from _answers(results)
    yield _finding(
        "the same request and seed give the same placement",
        (
            f"problem {seed} gave two placements"
            for seed, (first, second) in enumerate(zip(results, again, strict=False))
            if _nodes(first) != _nodes(second)
        ),
    )
    yield _hash_seeds(name)
    yield _edge_cases(empty, alone)


def _all_results(name: str) -> tuple[list[PlacementResult], list[PlacementResult], PlacementResult, PlacementResult]:
    """Return results of all problems, of some of them again, of an empty graph, and of a single node with room."""
    load_strategy(name)  # an error of the file is the user's answer
    results = [_result(generated_request(seed), name) for seed in range(PROBLEMS)]
    again = [_result(generated_request(seed), name) for seed in range(3)]
    whole = generated_request(0)
    node, state = next(iter(whole.hosts.items()))
    free = tuple(replace(stage, pinned=None, candidates=None) for stage in whole.stages)
    roomy = replace(state, resources={"slots": 99.0, "memory": 9_999.0})
    empty = _result(replace(whole, stages=(), edges=(), loads=()), name)
    return results, again, empty, _result(replace(whole, stages=free, hosts={node: roomy}), name)


def _result(request: PlacementRequest, name: str) -> PlacementResult:
    """Return the result of one problem in this process; an error of the strategy is the reason why it is skipped."""
    try:
        return place(request, name, PlacementOptions(time_limit_s=LIMIT_S, is_isolated=False))
    except Exception as error:  # noqa: BLE001  users' code may raise anything
        reason = f"it raised {type(error).__name__}: {error}"
        return PlacementResult(name, Problem(request), Objective("score"), skipped=reason)


def _answers(results: list[PlacementResult]) -> Iterator[ConformanceFinding]:
    placed = [(seed, result) for seed, result in enumerate(results) if result.placement is not None]
    yield _finding(
        "every instance gets exactly one node of the network",
        (
            f"problem {seed}: {len(result.placement.nodes)} of {len(result.problem.instances)} instances"
            for seed, result in placed
            if result.placement is not None and sorted(result.placement.nodes) != sorted(result.problem.instances)
        ),
        is_empty=not placed,
    )
    evaluated = [(seed, result) for seed, result in placed if result.evaluation is not None]
    yield _finding(
        "pins and candidates are kept",
        (
            f"problem {seed}: {violation['operator']} on {violation['node']}"
            for seed, result in evaluated
            if result.evaluation is not None
            for violation in result.evaluation.violations
            if violation["kind"] == "candidate"
        ),
        is_empty=not evaluated,
    )
    infeasible = [seed for seed, result in evaluated if not result.is_feasible]
    share = f"{len(evaluated) - len(infeasible)} of {PROBLEMS} problems"  # a heuristic may miss the others
    yield ConformanceFinding(
        "capacities are kept where that is possible", True if evaluated and not infeasible else None, share
    )


def _edge_cases(empty: PlacementResult, alone: PlacementResult) -> ConformanceFinding:
    problems = []
    if empty.skipped or (empty.placement is not None and empty.placement.nodes):
        problems.append(f"an empty graph gives {empty.skipped or 'a placement that is not empty'}")
    if not alone.is_feasible:
        problems.append(f"one node that has room for everything gives {alone.skipped or 'no feasible placement'}")
    return _finding("an empty graph and a single node are placed", iter(problems))


def _hash_seeds(name: str) -> ConformanceFinding:
    rule = "the placement does not depend on Python's hash seed"
    answers = []
    for seed in ("1", "2"):
        code = (
            "import sys; from agiledart.placement.conformance import printed_placement; "
            "print(printed_placement(sys.argv[1]))"
        )
        command, environment = [sys.executable, "-c", code, name], {**os.environ, "PYTHONHASHSEED": seed}
        try:
            run = subprocess.run(
                command, capture_output=True, text=True, check=False, env=environment, timeout=10 * LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return ConformanceFinding(rule, None, "it did not end")
        if run.returncode:
            return ConformanceFinding(rule, None, run.stderr.strip().rpartition("\n")[2][:120])
        answers.append(run.stdout)
    return ConformanceFinding(rule, answers[0] == answers[1], "" if answers[0] == answers[1] else "two placements")


def printed_placement(name: str) -> str:
    """Return the placements of three generated problems as text."""
    return repr([_nodes(_result(generated_request(seed), name)) for seed in range(3)])


def _nodes(result: PlacementResult) -> object:
    return sorted(result.placement.nodes.items()) if result.placement is not None else result.skipped


def _finding(rule: str, faults: Iterator[str], *, is_empty: bool = False) -> ConformanceFinding:
    if is_empty:
        return ConformanceFinding(rule, None, "there is no placement to judge")
    first = next(faults, None)
    return ConformanceFinding(rule, first is None, first or "")
