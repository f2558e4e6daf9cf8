"""Stages change while rows flow, on three real agents of this machine: how long rows stand still, and how soon more come.

    python -m benchmarks.scale moving [--keys 150000] [--rate 5000] [--moves 20]
    python -m benchmarks.scale following [--up 60] [--down 150]
    python -m benchmarks.scale uplink [--share 0.1]

Prints one JSON document, with the machine's load in it. `moving`: one instance with 64 MB of state moves to another agent several
times. `pause_ms` is the pause that the change reports; `p99_ms_meanwhile` is the delay of results at the sink's file during the
change. `following`: a step waits 10 ms for each row; the rate becomes four times as high and falls back. An interval is 5 s, the
bound of the p99 1 s. `uplink`: on emulated hosts (root, `ip`, /dev/net/tun), one host's uplink keeps a share of its bytes a second;
rows that arrive before and after the stage has an instance behind another uplink, and what `explain scaling` says.
"""

import argparse
import json
import sys

from benchmarks.scale.following import following
from benchmarks.scale.moving import moving
from benchmarks.scale.uplink import uplink


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("moving", "following", "uplink"))
    parser.add_argument("--keys", type=int, default=150_000)
    parser.add_argument("--rate", type=int, default=5_000)
    parser.add_argument("--moves", type=int, default=20)
    parser.add_argument("--rows", type=int, default=40_000, help="that `following` has to send")
    parser.add_argument("--up", type=float, default=60.0)
    parser.add_argument("--down", type=float, default=150.0)
    parser.add_argument("--share", type=float, default=0.1, help="of its bytes a second that the uplink keeps")
    chosen = parser.parse_args()
    if chosen.what == "moving":
        figures = moving(chosen.keys, chosen.rate, chosen.moves)
    elif chosen.what == "uplink":
        figures = uplink(chosen.share)
    else:
        figures = following(chosen.rows, chosen.up, chosen.down)
    print(json.dumps(figures, indent=2))
    return 0 if figures["exact"] and figures["state"] in ("finished", "stopped") else 1


if __name__ == "__main__":
    sys.exit(main())
