"""Cost of scaling decisions: controllers of many applications with nothing to do, from reports of instances to decisions.

    python -m benchmarks.scaling_costs [--applications 50] [--rounds 20] [-o json]

Each application has a chain of stages with limits; a round is one interval of all of them. CPU time is counted, and shown
as a share of one core at an interval of five seconds.
"""

import argparse
import json
import os
import time
from typing import Any

from agiledart_scaling.ask_policy import ask
from agiledart_scaling.controller import Controller, Interval
from agiledart_scaling.limits import Limits
from agiledart_scaling.measures import StageMeasures
from agiledart_scaling.one_pass import StageState
from agiledart_scaling.registry import policy_named

INTERVAL_S = 5.0
INSTANCES = 2


def controllers(count: int) -> list[Controller]:
    """Return controllers with the default policy, called as agents call them."""
    policy = policy_named("secant")
    return [
        Controller(lambda measures, limits, memory: ask("secant", policy, measures, limits, memory, time.monotonic_ns))
        for _ in range(count)
    ]


def interval(stages: int) -> Interval:
    """Return an interval in which every stage has just enough instances."""
    measures = StageMeasures((100.0,) * INSTANCES, (1 / INSTANCES,) * INSTANCES, (150.0,) * 5, (0.0,) * 5)
    states = [
        StageState(f"stage {number}", Limits(1, 8), measures, measured=(100.0,) * INSTANCES) for number in range(stages)
    ]
    return Interval(states, {state.stage: INSTANCES for state in states})


def measured(applications: int, stages: int, rounds: int) -> dict[str, Any]:
    """Return the figures of all rounds."""
    all_of_them, report = controllers(applications), interval(stages)
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        for controller in all_of_them:
            assert controller.ended(report) == ()
        spent.append(time.process_time() - began)
    median = sorted(spent)[len(spent) // 2]
    return {
        "applications": applications,
        "stages_each": stages,
        "cpu_ms_an_interval": round(median * 1e3, 3),
        "share_of_a_core": round(median / INTERVAL_S, 6),
        "load": os.getloadavg()[0],
    }


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--applications", type=int, default=50)
    parser.add_argument("--stages", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args()
    figures = measured(given.applications, given.stages, given.rounds)
    if given.output == "json":
        print(json.dumps(figures))
        return
    share = figures["share_of_a_core"]
    spent = figures["cpu_ms_an_interval"]
    print(f"{given.applications} applications of {given.stages} stages: {spent} ms an interval, {share:.4%} of a core")


if __name__ == "__main__":
    main()
