"""The tuples: drawn from a seed, written once to a file of each size, sent at a pace for J3.

python -m benchmarks.engines.data FOLDER COUNT
"""

import hashlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.engines.jobs import FARE_MIN, VEHICLES, ZONES

SEED = 42
EVENT_RATE = 20_000
"""Tuples in a second of event time."""

_BEGIN_MS = 1_357_000_000_000
_AT_ONCE = 10_000
VERSION = 1


def tails(count: int) -> Iterator[tuple[str, float]]:
    """Yield (line without its time, fare)."""
    draw = random.Random(SEED).random
    medallions = [hashlib.sha1(b"medallion %d" % i).hexdigest() for i in range(VEHICLES)]
    licences = [hashlib.sha1(b"licence %d" % i).hexdigest() for i in range(VEHICLES)]
    for number in range(count):
        vehicle = int(draw() * VEHICLES)
        second = number // EVENT_RATE
        minute, second = second // 60 % 60, second % 60
        fare = f"{2.5 + draw() * 20:.2f}"
        yield (
            f",{medallions[vehicle]},{licences[vehicle * 7919 % VEHICLES]},{int(draw() * ZONES)},{vehicle}"
            f",2013-01-01 00:{minute:02}:{second:02},2013-01-01 01:{minute:02}:{second:02}"
            f",{-74.05 + draw() * 0.3:.6f},{40.55 + draw() * 0.3:.6f},{draw() * 12:.2f},{fare},{draw() * 5:.2f}",
            float(fare),
        )


def lines(count: int) -> Iterator[str]:
    """Yield whole lines, each with its own time, in order."""
    for number, (tail, _) in enumerate(tails(count)):
        yield f"{_BEGIN_MS + number * 1_000 // EVENT_RATE}{tail}\n"


def file_of(folder: Path, count: int) -> Path:
    """Return the path of the file of so many lines; write the file when it is missing."""
    path = folder / f"tuples-{VERSION}-{count}.csv"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    print(f"writing {count:,} tuples to {path} …", file=sys.stderr, flush=True)
    part = path.with_suffix(".part")
    with part.open("w") as file:
        batch: list[str] = []
        for line in lines(count):
            batch.append(line)
            if len(batch) == _AT_ONCE:
                file.write("".join(batch))
                batch.clear()
        file.write("".join(batch))
    part.replace(path)
    return path


def passing(fares: list[float], count: int) -> int:
    """Return how many of the first `count` tuples pass the filter when the given ones are sent repeatedly."""
    whole, rest = divmod(count, len(fares))
    passes = [fare >= FARE_MIN for fare in fares]
    return whole * sum(passes) + sum(passes[:rest])


if __name__ == "__main__":
    print(file_of(Path(sys.argv[1]), int(sys.argv[2])))
