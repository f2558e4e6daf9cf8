"""The generated stream against the figures of the real one (spec of the queries, 3.4), each with its tolerance.

"Real" is the sample of 10,004 trips of 2013-01-01, or the year's demand for rates. The generator follows a recipe
rather than the sample, so shapes agree better than tails: distances spread less (no trips to other states), and ends
are more concentrated than in reality.
"""

import gzip
import os
import subprocess
import sys
from collections import Counter
from datetime import datetime
from functools import cache
from hashlib import sha256
from itertools import islice, pairwise, takewhile
from math import log
from pathlib import Path
from statistics import correlation, mean, median, pstdev, variance

import pytest

from agiledart_examples.taxi_trips import generate, main
from tests.oracle.debs2015 import Answers, admit, cell, fault

COUNT = 20_000


@cache
def rows(seed: int = 1) -> list[list[str]]:
    return [line.split(",") for line in generate(seed, COUNT)]


def column(index: int) -> list[float]:
    return [float(row[index]) for row in rows()]


def test_every_line_is_well_formed_and_the_stream_is_sorted() -> None:
    assert len(rows()) == COUNT
    assert all(fault(row) is None for row in rows())
    assert all(a[3] <= b[3] for a, b in pairwise(rows()))
    assert rows()[0][3] >= "2013-01-07 08:00:00"


def test_durations_and_totals_add_up() -> None:
    for row in rows():
        took = datetime.fromisoformat(row[3]) - datetime.fromisoformat(row[2])
        assert took.total_seconds() == int(row[4]) > 0
        assert float(row[16]) == pytest.approx(sum(map(float, row[11:16])), abs=1e-9)


def test_a_taxi_starts_only_after_its_dropoff() -> None:
    free: dict[str, str] = {}
    again = 0
    for row in rows():
        if row[0] in free:
            again += 1
            assert row[2] >= free[row[0]]
        free[row[0]] = row[3]
    assert again > COUNT / 3, "taxis must come back, or no area ever loses an empty taxi"
    licences = {row[0]: row[1] for row in rows()}
    assert len(licences) <= 13_000
    assert all(len(name) == 32 and int(name, 16) >= 0 for pair in licences.items() for name in pair)


def test_fares() -> None:
    fares = column(11)
    assert mean(fares) == pytest.approx(11.08, abs=1.0)
    assert median(fares) == pytest.approx(9.00, abs=1.0)
    assert all(fare >= 2.5 and fare * 2 == int(fare * 2) for fare in fares)


def test_distances() -> None:
    miles = column(5)
    assert mean(miles) == pytest.approx(2.55, abs=0.3)
    assert pstdev(miles) == pytest.approx(2.32, abs=0.7)


def test_durations() -> None:
    seconds = column(4)
    logs = [log(value) for value in seconds]
    assert mean(seconds) == pytest.approx(643, abs=50)
    assert mean(logs) == pytest.approx(6.304, abs=0.08)
    assert pstdev(logs) == pytest.approx(0.570, abs=0.15)
    assert correlation(seconds, column(5)) == pytest.approx(0.73, abs=0.1)


def test_share_outside_the_grid() -> None:
    outside = sum(
        cell((float(row[6]), float(row[7])), 1) is None or cell((float(row[8]), float(row[9])), 1) is None
        for row in rows()
    )
    assert outside / COUNT == pytest.approx(0.018, abs=0.004)


def test_payments_tips_tolls_and_charges() -> None:
    cards = [row for row in rows() if row[10] == "CRD"]
    assert len(cards) / COUNT == pytest.approx(0.40, abs=0.015)
    assert {row[10] for row in rows()} == {"CRD", "CSH"}
    shares = [float(row[14]) / float(row[11]) for row in cards if float(row[14]) > 0]
    assert len(shares) / len(cards) == pytest.approx(0.94, abs=0.01)
    assert median(shares) == pytest.approx(0.21, abs=0.01)
    assert all(row[14] == "0.00" for row in rows() if row[10] == "CSH")
    assert sum(row[15] == "4.80" for row in rows()) / COUNT == pytest.approx(0.02, abs=0.005)
    assert {row[13] for row in rows()} == {"0.50"}
    assert {row[12] for row in rows()} == {"0.00"}, "no surcharge between 06:00 and 20:00"
    night = [line.split(",") for line in generate(1, 200, datetime(2013, 1, 7, 22, 0))]  # noqa: DTZ001  local time
    assert {row[12] for row in night} == {"0.50"}


def test_places_are_as_concentrated_as_in_the_sample() -> None:
    starts: Counter[object] = Counter(cell((float(row[6]), float(row[7])), 1) for row in rows())
    del starts[None]
    total = starts.total()
    assert sum(n for _, n in starts.most_common(10)) / total == pytest.approx(0.16, abs=0.02)
    assert sum(n for _, n in starts.most_common(100)) / total == pytest.approx(0.83, abs=0.02)
    assert 300 <= len([n for n in starts.values() if n > 0]) <= 423 * 4


@pytest.mark.parametrize(
    ("start", "per_minute"),
    [
        (datetime(2013, 1, 7, 9, 20), 330 * 0.88 * 1.06),  # noqa: DTZ001  Monday morning
        (datetime(2013, 1, 9, 5, 20), 330 * 1.00 * 0.24),  # noqa: DTZ001  Wednesday before dawn
        (datetime(2013, 1, 12, 19, 20), 330 * 1.12 * 1.51),  # noqa: DTZ001  Saturday evening
        (datetime(2013, 1, 13, 0, 20), 330 * 0.98 * 0.97),  # noqa: DTZ001  Sunday night, after midnight
    ],
)
def test_demand_follows_hour_and_weekday(start: datetime, per_minute: float) -> None:
    first, last = start.replace(minute=25), start.replace(minute=45)
    trips = (line.split(",")[3] for line in generate(7, None, start))
    minutes = Counter(at[:16] for at in takewhile(lambda at: at < str(last), trips) if at >= str(first))
    assert len(minutes) == 20
    assert mean(minutes.values()) == pytest.approx(per_minute, rel=0.08)


def test_trips_come_like_a_poisson_process() -> None:
    noon = datetime(2013, 1, 7, 12, 15)  # noqa: DTZ001  local time; demand is the same from 12 to 14 o'clock
    minutes = Counter(line.split(",")[3][:16] for line in generate(1, 15_000, noon))
    counts = list(minutes.values())[:-1]
    assert len(counts) >= 40
    assert variance(counts) / mean(counts) == pytest.approx(1.0, abs=0.6)


def test_the_seed_determines_everything() -> None:
    assert list(generate(5, 500)) == list(generate(5, 500))
    assert list(generate(5, 500)) != list(generate(6, 500))
    assert list(generate(5, 200)) == list(generate(5, 500))[:200]
    code = "from agiledart_examples.taxi_trips import generate; print(*generate(5, 500), sep=chr(10))"
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.splitlines() == list(generate(5, 500))


def test_the_stream_of_seed_one_is_unchanged() -> None:
    """Published figures name a seed; a change of the generator that changes them must be meant."""
    digest = sha256("\n".join(generate(1, 5_000)).encode()).hexdigest()
    assert digest[:16] == "d2772754cc5381c1"


def test_the_stream_passes_midnight_and_is_admitted_without_a_fault() -> None:
    answers = Answers()
    start = datetime(2012, 12, 31, 23, 50)  # noqa: DTZ001  local time
    trips = list(admit(generate(2, 6_000, start), answers))
    assert len(trips) == 6_000
    assert trips[0].dropoff < "2013" < trips[-1].dropoff


def test_count() -> None:
    assert list(generate(1, 0)) == []
    assert len(list(islice(generate(1), 10))) == 10
    with pytest.raises(ValueError, match="must not be negative"):
        generate(1, -1)


class TestCommandLine:
    def test_writes_a_file_whose_bytes_depend_on_the_seed_only(self, tmp_path: Path) -> None:
        one, two, plain = tmp_path / "one.csv.gz", tmp_path / "two.csv.gz", tmp_path / "plain.csv"
        for path in (one, two, plain):
            assert main(["--count", "50", "--seed", "3", "--output", str(path)]) == 0
        assert one.read_bytes() == two.read_bytes()
        assert gzip.decompress(one.read_bytes()) == plain.read_bytes()
        assert plain.read_text().splitlines() == list(generate(3, 50))

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--output", "x.csv"], "--output needs --count"),
            (["--count", "-1"], "must not be negative"),
            (["--count", "many"], "invalid int"),
            (["--start", "noon"], "invalid"),
        ],
    )
    def test_usage(self, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2
        assert message in capsys.readouterr().err

    def test_an_unwritable_path(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--count", "1", "--output", str(tmp_path / "no" / "x.csv")]) == 1
        assert "cannot write" in capsys.readouterr().err

    def test_a_reader_that_closes_the_pipe(self) -> None:
        with subprocess.Popen(
            [sys.executable, "-m", "agiledart_examples.taxi_trips"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline().count(b",") == 16
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(30) == 0
