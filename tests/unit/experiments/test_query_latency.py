"""`query-latency`: its statistics, its input, and its choice of applications; a run on agents is slow."""

import json
import socket
import threading
from pathlib import Path

import pytest

from agiledart_experiments import query_latency
from agiledart_experiments.queries.compared_application import APPLICATIONS, city_metadata
from agiledart_experiments.queries.growing_results import GrowingResults
from agiledart_experiments.queries.timed_sender import TimedSender
from agiledart_experiments.query_latency import digest, quantile
from agiledart_experiments.report import Settings
from agiledart_kernel.errors import ConfigurationError
from tests.e2e.mesh import cli


def test_quantiles_are_values_that_occurred() -> None:
    delays = [float(n) for n in range(1, 101)]
    assert [quantile(delays, share) for share in (0.5, 0.95, 0.99, 1.0)] == [50.0, 95.0, 99.0, 100.0]
    assert quantile([7.0], 0.99) == 7.0
    assert quantile([1.0, 2.0, 3.0], 0.5) == 2.0


def test_a_digest_knows_order_and_borders_of_cells() -> None:
    assert digest([["a", "b"]]) == digest([["a", "b"]])
    assert len({digest(rows) for rows in ([["a", "b"]], [["ab"]], [["b", "a"]], [["a"], ["b"]], [])}) == 5


@pytest.mark.parametrize("name", sorted(APPLICATIONS))
def test_each_result_has_the_line_that_caused_it(name: str, tmp_path: Path) -> None:
    app = APPLICATIONS[name]
    metadata = tmp_path / "metadata"
    metadata.write_text("\n".join(city_metadata(3)) + "\n")
    lines = app.lines(3, 1_500)
    results = app.reference(lines, metadata, tmp_path)
    causes = app.causes(lines, results)
    assert len(causes) == len(results) >= 40
    assert all(0 <= cause < len(lines) for cause in causes)
    assert app.canonical(results) == app.canonical([[*row] for row in results])
    if app.is_ordered:
        assert causes == sorted(causes)
    else:
        assert app.canonical(results) == app.canonical(results[::-1])


def test_numbers_are_equal_in_any_form_and_names_of_cells_are_no_numbers() -> None:
    etl, routes = APPLICATIONS["etl-city"], APPLICATIONS["frequent-routes"]
    assert etl.canonical([["1", "0", "ci4", "0.30000000000000004"]]) == etl.canonical([["1", "0", "ci4", "0.3"]])
    assert routes.canonical([["a", "b", "157.160", "9"]]) != routes.canonical([["a", "b", "157.16", "9"]])


def test_lines_are_sent_when_they_are_due_and_seen_when_they_are_there(tmp_path: Path) -> None:
    sender, results = TimedSender([str(n) for n in range(200)], 1_000), GrowingResults(tmp_path / "out")
    with socket.create_connection(("127.0.0.1", sender.port)) as engine, sender.accept() as connection:
        sending = threading.Thread(target=sender.send, args=(connection, 10.0))
        sending.start()
        with (tmp_path / "out").open("wb") as file:
            text = b""
            while text.count(b"\n") < 200:
                data = engine.recv(65_536)
                text += data
                file.write(data)
                file.flush()
        sending.join()
        assert results.wait_for(200, 10)
    results.close()
    sender.close()
    assert results.text.split() == [str(n) for n in range(200)]
    late = [at - sender.due(n) for n, at in enumerate(results.times)]
    assert min(late) > 0, "no line comes before it is due"
    assert results.times == sorted(results.times)


def test_medians_of_two_engines_are_compared() -> None:
    figures = {"app": "a", "rate": 5, "p99_ms": 9.0, "cpu_s": 1.0, "pss_mb": 70.0}
    rows = [{**figures, "engine": "agiledart", "p50_ms": ms} for ms in (1.0, 3.0, 50.0)]
    assert query_latency.comparisons(rows) == []
    rows += [{**figures, "engine": "storm", "p50_ms": ms} for ms in (4.0, 4.0, 0.0)]
    (text,) = query_latency.comparisons(rows)
    assert text.startswith("a at 5/s: p50 3.00 ms, Storm 4.00 ms, 25.0% less (published: 16.7% to 52.7%")


def test_the_sustained_rate_is_the_highest_below_which_none_failed() -> None:
    outcomes = {"agiledart": {500: [True, True], 1_000: [True, True], 2_000: [True, False], 4_000: [True, True]}}
    outcomes["storm"] = {500: [True], 1_000: [True], 2_000: [True], 4_000: [False]}
    rows = [
        {"app": "a", "engine": engine, "rate": rate, "sustained": outcome}
        for engine, rates in outcomes.items()
        for rate, runs in rates.items()
        for outcome in runs
    ]
    assert query_latency.sustained_rates(rows) == [
        "a: sustained in all runs, of 500, 1,000, 2,000, 4,000/s: agiledart 1,000/s, storm 2,000/s;"
        " medium to high load, from 60% of Storm's: 2,000/s, 4,000/s"
    ]
    assert query_latency.sustained_rates([{"app": "b", "engine": "agiledart", "rate": 5, "sustained": False}]) == [
        "b: sustained in all runs, of 5/s: agiledart none"
    ]


def test_an_unknown_application_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="it has frequent-routes, profitable-areas"):
        query_latency.run(Settings(apps=("etl",)))
    with pytest.raises(ConfigurationError, match="beside storm, not beside flink"):
        query_latency.run(Settings(beside="flink"))


@pytest.mark.e2e
@pytest.mark.slow
def test_a_run_on_three_agents() -> None:
    words = ("experiment", "run", "query-latency", "--app", "frequent-routes", "--rates", "100", "-o", "json")
    ran = cli(*words)
    assert ran.returncode == 0, ran.stderr
    (row,) = json.loads(ran.stdout)["results"]
    assert row["app"] == "frequent-routes"
    assert row["is_equal"]
    assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]
    assert row["cpu_s"] > 0
