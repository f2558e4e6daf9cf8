"""`python -m benchmarks.faults`: draws faults, checks the outcome, and prints for each violation the command that repeats it."""

import argparse
import contextlib
import json
import shutil
import signal
import sys
from pathlib import Path

from benchmarks.faults.campaign import DrawOutcome, FaultCampaign
from benchmarks.faults.draws import CLASSES
from benchmarks.faults.lab import FaultLab


def main(arguments: list[str] | None = None) -> int:
    """Run the campaign; return 1 when an invariant was violated."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults", description="Real agents, drawn faults, judges."
    )
    parser.add_argument("--seed", type=int, default=1, help="number of the first draw; the next ones follow it")
    parser.add_argument(
        "--class", dest="kinds", action="append", choices=CLASSES, help="only these faults; may be repeated"
    )
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=24 * 60, help="begin no draw after this time")
    parser.add_argument("--keep", metavar="FOLDER", help="put logs of agents here when something is violated")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args(arguments)

    def print_line(outcome: DrawOutcome, lab: FaultLab) -> None:
        how = outcome.skipped or outcome.state or "refused"
        longest = max(outcome.took, key=lambda part: outcome.took[part])
        took = f"{outcome.seconds:g} s, {longest} {outcome.took[longest]:g} s"
        print(
            f"{outcome.draw.number}: {outcome.draw}: {how} {outcome.reason[:160]} ({took})", file=sys.stderr, flush=True
        )
        for text in outcome.violations:
            print(f"  VIOLATED {text}\n  again: {outcome.draw.again}", file=sys.stderr, flush=True)
        if outcome.violations and given.keep:
            folder = Path(given.keep) / str(outcome.draw.number)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "status.json").write_text(json.dumps(lab.status(f"job{outcome.draw.number}"), indent=1))
            for agent in lab.mesh.agents:
                shutil.copy(agent.log, folder)

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that hosts and file systems are taken away
    campaign = FaultCampaign()
    with contextlib.suppress(KeyboardInterrupt):  # report the results until the interrupt
        campaign.run(given.seed, tuple(given.kinds or CLASSES), given.draws, given.minutes, print_line)
    document = campaign.to_dict()
    if given.output == "json":
        print(json.dumps(document, indent=1))
    else:
        print(f"{document['draws']} draws, {document['violations']} with a violation, skipped {document['skipped']}")
    return 1 if document["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
