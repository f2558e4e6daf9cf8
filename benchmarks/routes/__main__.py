"""Six agents on emulated hosts: faults of their links, and the effect on rows.

    python -m benchmarks.routes [--scenarios loss,cut] [--runs 5] [--output FILE]

Prints a line of JSON for each run. Each run has a new mesh; rows come at a steady rate, and the result is compared with what one
process gives. It needs root, `ip` and /dev/net/tun. Gaps on a busy machine are larger.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.routes.hosts import CannotEmulate
from benchmarks.routes.mesh import RouteLab
from benchmarks.routes.scenarios import SCENARIOS, LinkScenario

BEGIN_SECONDS = 4.0


def run(scenario: LinkScenario, seed: int) -> dict[str, Any]:
    """Carry out one run; return its figures."""
    with RouteLab(seed, all_relay=scenario.all_relay) as lab:
        if scenario.before is not None:
            scenario.before(lab)
        submitted = time.monotonic()
        rows = int(scenario.seconds * scenario.rate)
        job = lab.submit(scenario.paths, rows, scenario.rate, scenario.width, scenario.delivery)
        job.until_rows_come()
        first = time.monotonic()
        time.sleep(BEGIN_SECONDS)
        figures = scenario.act(lab, job)
        route = job.route()
        state = job.ends(120)
        expected = (lab.agents.folder / "rows.csv").read_bytes().count(b"\n")
        return {
            "scenario": scenario.name,
            "seed": seed,
            "seconds_to_first_row": round(first - submitted, 2),
            **figures,
            "moves": route.get("moves", {}),
            "state": state,
            "reason": job.status().get("reason", ""),
            "rows_missing": expected - job.out.read_bytes().count(b"\n"),
            "as_run": job.is_as_run(),
            "load": round(os.getloadavg()[0], 1),
        }


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.routes", description=__doc__)
    parser.add_argument("--scenarios", default="", help=f"beginnings of names, of {', '.join(SCENARIOS)}")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    wanted = tuple(filter(None, chosen.scenarios.split(",")))
    results = []
    try:
        for scenario in SCENARIOS.values():
            if wanted and not scenario.name.startswith(wanted):
                continue
            for seed in range(1, chosen.runs + 1):
                results.append(run(scenario, seed))
                print(json.dumps(results[-1]), flush=True)
                if chosen.output:
                    chosen.output.write_text(json.dumps(results, indent=1) + "\n")
    except CannotEmulate as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
