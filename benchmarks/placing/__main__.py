"""Placement on live measures, on emulated hosts.

    python -m benchmarks.placing live [--strategies along_path,hybrid,mopa_probe,odp]
    python -m benchmarks.placing slow-link [--moves on|mopa]

`live` moves a step to where each strategy would have it, and compares the predicted response with the measured one. `slow-link`
makes the best link ten times slower, and says how long it takes until the placement follows. Each prints lines of JSON. It needs
root, `ip` and /dev/net/tun; figures on a busy machine are larger.
"""

import argparse
import json
import os
import sys
import time

from benchmarks.placing.lab import BEST, DELAYS, SINK, SOURCE, PlacingLab
from benchmarks.routes.hosts import CannotEmulate

PREPARATION_S = 12.0
"""Time after a move before its rows are measured: two control intervals."""

MEASURED_S = 10.0


def _wait(condition: object, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.5)
    return False


def live(strategies: list[str]) -> None:
    """Compare predicted and measured response for the place that each strategy chooses."""
    with PlacingLab("off") as lab:
        watch = lab.submit(60 + 60 * len(strategies))
        _wait(lambda: len(watch.rows) > 10, 60)
        time.sleep(PREPARATION_S)
        for strategy in strategies:
            node = lab.placed_by(strategy)
            if lab.host() != node:
                lab.cli("move", "placed", "work", node)
            time.sleep(PREPARATION_S)
            since = time.monotonic()
            time.sleep(MEASURED_S)
            until, predicted = time.monotonic(), lab.explained()["predicted_ms"]
            p50, p99 = (watch.percentile(share, since, until) for share in (0.5, 0.99))
            ratio = None if p50 is None else round(predicted / p50, 3)
            print(json.dumps({"strategy": strategy, "node": node, "predicted_ms": round(predicted, 2), "p50_ms": p50,
                              "p99_ms": p99, "ratio": ratio, "load": round(os.getloadavg()[0], 1)}), flush=True)  # fmt: skip
        watch.end()
        print(json.dumps({"exact_rows": lab.exact_rows()}), flush=True)


def slow_link(moves: str) -> None:
    """Make the link from the source to the best node ten times slower once the step runs there."""
    best = f"a{BEST}"
    with PlacingLab(moves) as lab:
        lab.hosts.link(BEST, SINK, delay=0.014)  # the best by more than the 5 % from which a move pays
        watch = lab.submit(520)
        _wait(lambda: len(watch.rows) > 10, 60)
        first = lab.host()
        if moves in ("on", "mopa"):
            moved = _wait(lambda: lab.host() == best, 240 if moves == "on" else 300)
        else:
            moved = lab.cli("move", "placed", "work", best).returncode == 0
            lab.cli("move", "placed", "work", "auto")
        time.sleep(PREPARATION_S)
        since = time.monotonic()
        time.sleep(MEASURED_S)
        before = watch.percentile(0.5, since, time.monotonic())
        slow = time.monotonic()
        lab.hosts.link(SOURCE, BEST, delay=10 * DELAYS[SOURCE, BEST])
        followed = advised = None
        while time.monotonic() < slow + 120 and followed is None:
            decisions = lab.explained()["decisions"]
            if advised is None and decisions and decisions[-1]["action"] != "nothing" and decisions[-1]["node"] != best:
                advised = round(time.monotonic() - slow, 1)
            p50 = watch.percentile(0.5, time.monotonic() - 3, time.monotonic())
            if lab.host() != best and p50 is not None and before is not None and p50 < 1.5 * before:
                followed = round(time.monotonic() - slow, 1)
            time.sleep(1)
        print(json.dumps({
            "moves": moves, "first_node": first, "moved_to_best": moved, "p50_before_ms": before, "advised_after_s": advised,
            "followed_after_s": followed, "node": lab.host(),
            "p50_after_ms": watch.percentile(0.5, time.monotonic() - 3, time.monotonic()),
            "longest_silence_s": watch.longest_silence_s(slow, time.monotonic()), "exact_rows": lab.exact_rows(),
            "decisions": lab.explained()["decisions"],
            "load": round(os.getloadavg()[0], 1),
        }), flush=True)  # fmt: skip
        watch.end()


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placing", description=__doc__)
    parser.add_argument("what", choices=("live", "slow-link"))
    parser.add_argument("--strategies", default="along_path,hybrid,mopa_probe,odp")
    parser.add_argument("--moves", default="on")
    chosen = parser.parse_args()
    try:
        if chosen.what == "live":
            live(chosen.strategies.split(","))
        else:
            slow_link(chosen.moves)
    except CannotEmulate as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
