"""Conformance of a strategy: the rules that every one keeps, tried on generated problems, in words."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

from agiledart.placement.running import PlacementOptions, PlacementResult, place
from agiledart_kernel.randomness import RandomStream
from agiledart_placement.files.network_file import read_network
from agiledart_placement.files.topology_file import joined_request, read_topology
from agiledart_placement.problem.request import PlacementRequest

PROBLEMS = 12
LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class ConformanceFinding:
    """Outcome of one rule.

    Attributes:
        rule: the rule in words.
        passed: None: the rule could not be tried.
        detail: the first fault.
    """

    rule: str
    passed: bool | None
    detail: str = ""

    @property
    def word(self) -> str:
        """Return the outcome as a word."""
        return {True: "ok", False: "FAILED", None: "skipped"}[self.passed]


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
    options = PlacementOptions(time_limit_s=LIMIT_S)
    results = [place(generated_request(seed), name, options) for seed in range(PROBLEMS)]
    yield from _answers(results)
    yield _finding(
        "the same request and seed give the same placement",
        (
            f"problem {seed} gave two placements"
            for seed, first in enumerate(results[:3])
            if _nodes(place(generated_request(seed), name, options)) != _nodes(first)
        ),
    )
    yield _hash_seeds(name)
    yield _edge_cases(name, options)


def _answers(results: list[PlacementResult]) -> Iterator[ConformanceFinding]:
    yield _finding(
        "it returns a Placement within its time limit and raises nothing",
        (f"problem {seed}: {result.skipped}" for seed, result in enumerate(results) if result.skipped),
    )
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
    share = f"{len(evaluated) - len(infeasible)} of {PROBLEMS} problems"
    yield ConformanceFinding("capacities are kept where that is possible", not infeasible if evaluated else None, share)


def _edge_cases(name: str, options: PlacementOptions) -> ConformanceFinding:
    whole = generated_request(0)
    empty = replace(whole, stages=(), edges=(), loads=())
    problems = []
    result = place(empty, name, options)
    if result.skipped or (result.placement is not None and result.placement.nodes):
        problems.append(f"an empty graph gives {result.skipped or 'a placement that is not empty'}")
    node, state = next(iter(whole.hosts.items()))
    free = tuple(replace(stage, pinned=None, candidates=None) for stage in whole.stages)
    roomy = replace(state, resources={"slots": 99.0, "memory": 9_999.0})
    alone = place(replace(whole, stages=free, hosts={node: roomy}), name, options)
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
        run = subprocess.run(
            [sys.executable, "-c", code, name],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONHASHSEED": seed},
            timeout=60 + 10 * LIMIT_S,
        )
        if run.returncode:
            return ConformanceFinding(rule, None, run.stderr.strip().rpartition("\n")[2][:120])
        answers.append(run.stdout)
    return ConformanceFinding(rule, answers[0] == answers[1], "" if answers[0] == answers[1] else "two placements")


def printed_placement(name: str) -> str:
    """Return the placements of three generated problems as text."""
    options = PlacementOptions(time_limit_s=LIMIT_S)
    return repr([_nodes(place(generated_request(seed), name, options)) for seed in range(3)])


def _nodes(result: PlacementResult) -> object:
    return sorted(result.placement.nodes.items()) if result.placement is not None else result.skipped


def _finding(rule: str, faults: Iterator[str], *, is_empty: bool = False) -> ConformanceFinding:
    if is_empty:
        return ConformanceFinding(rule, None, "there is no placement to judge")
    first = next(faults, None)
    return ConformanceFinding(rule, first is None, first or "")
