"""RIoTBench is exact: on the samples of the benchmark, at every parallelism, and under hostile schedules."""

import csv as csv_files
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agiledart import Topology, collect, csv, lines, plugin, records
from agiledart.testing import run_local
from agiledart_examples.riotbench import (
    etl_city,
    etl_fit,
    etl_taxi,
    pred_city,
    pred_taxi,
    stats_cities,
    stats_city,
    train_city,
    train_taxi,
)
from agiledart_examples.riotbench.bloom import BloomFilter
from agiledart_examples.riotbench.estimators import DistinctCount
from agiledart_examples.riotbench.model_training import decision_tree, least_squares, quartile_classes
from agiledart_examples.riotbench.workloads import CITY, FIT, TAXI, StreamSettings
from tests.applications import riotbench_reference as reference
from tests.data import data_path

Builder = Callable[..., Topology]

METADATA = {"city": "city_metadata.txt.gz", "taxi": "taxi_metadata.txt.gz", "fit": "fit_metadata.txt"}


def sample(name: str) -> Path:
    """The sample of a workload."""
    return data_path(f"riotbench/{name}_sample_senml.csv.gz")


def chosen(name: str) -> dict[str, Any]:
    """The settings of a workload."""
    return reference.settings(data_path("riotbench/topologies.json"), name)


@pytest.mark.parametrize("workload", [CITY, TAXI, FIT], ids=lambda workload: workload.name)
def test_settings_are_those_of_the_benchmark(workload: StreamSettings) -> None:
    given = chosen(workload.name)
    assert workload.fields == tuple(given["fields"])
    assert workload.id_field == given["id_field"]
    assert {name: list(limits) for name, limits in workload.ranges.items()} == given["range_filter"]
    assert workload.interpolation == given["interpolation_window"]
    assert workload.average == given["block_average_window"]
    assert workload.bloom == (given["bloom"] is not None)
    assert workload.accumulated == given["accumulator_window"]
    assert workload.distinct_bits == given["distinct_count_log2_buckets"]


@pytest.mark.parametrize(("parallelism", "seed"), [(1, None), (2, 7), (4, 8)])
@pytest.mark.parametrize(("name", "builder"), [("city", etl_city), ("taxi", etl_taxi), ("fit", etl_fit)])
def test_etl_is_exact(name: str, builder: Builder, parallelism: int, seed: int | None) -> None:
    given = reference.read_lines(sample(name))[: 1000 if seed is None else 200]
    metadata = data_path(f"riotbench/{METADATA[name]}")
    topology = builder(records(given, row_type=str), str(metadata), collect)
    rows: Any = run_local(topology, parallelism=parallelism, schedule_seed=seed)
    reference.assert_rows(rows, reference.etl(given, reference.read_lines(metadata), chosen(name)))


def test_published_senml_is_the_row_of_the_table() -> None:
    messages, metadata = lines(str(sample("taxi"))), str(data_path(f"riotbench/{METADATA['taxi']}"))
    results: Any = run_local(etl_taxi(messages, metadata, collect, collect))
    for row, text in zip(results["table"], results["published"], strict=True):
        document = json.loads(text)
        values = {entry["n"]: entry.get("v", entry.get("sv")) for entry in document["e"]}
        assert document["bt"] == row.ms
        assert values["taxi_identifier"] == row.id
        assert {name: float(values[name]) if name in values else None for name in TAXI.fields} == {
            name: row._asdict()[name] for name in TAXI.fields
        }


def test_sensors_without_metadata_and_broken_lines() -> None:
    known = '1,{"e":[{"n":"source","sv":"a"},{"n":"temperature","v":"20"},{"n":"humidity","v":""}],"bt":1}'
    text = [known, "no message", known.replace('"a"', '"b"'), '2,{"e":[{"n":"light","v":"1"}]}', known]
    topology = etl_city(records(text, row_type=str), "", collect)
    rows: Any = run_local(topology)
    assert [(row.message, row.id, row.temperature, row.location) for row in rows] == [
        (0, "a", 0.0, None),
        (1, "b", 0.0, None),
        (2, "a", 0.0, None),
    ]


@pytest.mark.parametrize(("parallelism", "seed"), [(1, None), (3, 5)])
@pytest.mark.parametrize(
    ("name", "builder", "workload"), [("city", pred_city, CITY), ("taxi", pred_taxi, TAXI)], ids=["city", "taxi"]
)
def test_pred_is_exact(
    name: str, builder: Builder, workload: StreamSettings, parallelism: int, seed: int | None
) -> None:
    models = data_path("riotbench/models_decoded.json")
    topology = builder(lines(str(sample(name))), str(models), collect)
    rows: Any = run_local(topology, parallelism=parallelism, schedule_seed=seed)
    expected = reference.pred(
        reference.read_lines(sample(name)),
        chosen(name),
        json.loads(models.read_text())["models"],
        name.upper(),
        workload.inputs,
        workload.target,
    )
    reference.assert_rows(rows, expected)
    assert name == "city" or sum(row.error is not None for row in rows) == 52  # a taxi with 61 trips


@pytest.mark.parametrize(("parallelism", "seed"), [(1, None), (4, None), (2, 3)])
def test_stats_of_cities_are_exact(parallelism: int, seed: int | None, tmp_path: Path) -> None:
    file = data_path("senseyourcity/cities_5min_2015-03-26.csv.gz")
    if seed is not None:  # a hostile schedule takes long: the head is enough
        head = tmp_path / "head.csv"
        head.write_text("\n".join(reference.read_lines(file)[:250]) + "\n")
        file = head
    rows: Any = run_local(stats_cities(csv(str(file)), collect), parallelism=parallelism, schedule_seed=seed)
    series: dict[tuple[str, str], list[tuple[str, float]]] = defaultdict(list)
    for line in csv_files.DictReader(reference.read_lines(file)):
        for name in CITY.fields:
            series[line["city"], name].append((line["timestamp"], float(line[name])))
    expected = {
        (time, *key): estimate
        for key, values in series.items()
        for (time, _), estimate in zip(values, reference.statistics([value for _, value in values]), strict=True)
    }
    assert len(rows) == len(expected) == (7 * 288 if seed is None else 249) * 5
    reference.assert_rows([row[3:] for row in rows], [expected[row[:3]] for row in rows])


def test_stats_of_sensors_are_exact() -> None:
    messages = plugin("example", stream="city", sensors=5, count=150)
    results: Any = run_local(stats_city(messages, collect, collect, collect))
    found = defaultdict(list)
    for row in results["estimates"]:
        found[row.id, row.field].append(row)
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in stream_lines("city", sensors=5, count=150):
        _, sensor, fields = reference.parsed(line, "source")
        for name in CITY.fields:
            if fields[name]:
                values[sensor, name].append(float(fields[name]))
    assert set(found) == set(values)
    for key, rows in found.items():
        reference.assert_rows([row[3:] for row in rows], reference.statistics(values[key]))
    for series in results["series"]:
        assert len(series.values) == CITY.accumulated
    assert sum(len(rows) // CITY.accumulated for rows in found.values()) == len(results["series"])
    assert len(results["distinct"]) == 150


def stream_lines(stream: str, **options: Any) -> list[str]:
    """The lines of a generated stream."""
    topology = Topology("lines")
    topology.source("lines", plugin("example", stream=stream, **options), rows=str).sink("out", collect)
    rows: Any = run_local(topology)
    return list(rows)


def test_distinct_count_is_within_its_error() -> None:
    """The standard error of log-log counting is 1.3 / √m: 4 % with 1,024 buckets."""
    counter = DistinctCount([0] * 1024)
    estimates = [counter.update(f"sensor-{number % 20_000}") for number in range(40_000)]
    assert estimates[-1] == pytest.approx(20_000, rel=0.15)
    assert estimates[19_999] == estimates[-1]


def test_bloom_filter_forgets_nothing_and_claims_little() -> None:
    bloom = BloomFilter()
    for number in range(20_000):
        bloom.add(f"known-{number}")
    assert all(f"known-{number}" in bloom for number in range(20_000))
    assert sum(f"other-{number}" in bloom for number in range(5_000)) <= 5


@pytest.mark.parametrize(("parallelism", "seed"), [(1, None), (3, 2)])
@pytest.mark.parametrize(
    ("name", "builder", "workload"), [("city", train_city, CITY), ("taxi", train_taxi, TAXI)], ids=["city", "taxi"]
)
def test_train_is_exact(
    name: str, builder: Builder, workload: StreamSettings, parallelism: int, seed: int | None
) -> None:
    timer = data_path(f"riotbench/train_timer_{name}.csv")
    topology = builder(csv(str(timer)), lines(str(sample(name))), collect)
    rows: Any = run_local(topology, parallelism=parallelism, schedule_seed=seed)
    given = [reference.parsed(line, workload.id_field) for line in reference.read_lines(sample(name))]
    first, end = (int(text) for text in timer.read_text().splitlines()[1].split(",")[2:])
    used = [fields for at_ms, _, fields in given if first <= at_ms < end]
    columns = np.array([[float(fields[key]) for key in workload.regressors] for fields in used])
    target = np.array([float(fields[workload.target]) for fields in used])
    solution, *_ = np.linalg.lstsq(np.column_stack([columns, np.ones(len(target))]), target, rcond=None)
    assert [(row.timer, row.kind, row.rows) for row in rows] == [
        (1, "regression", len(used)),
        (1, "tree", len(used)),
    ]
    assert json.loads(rows[0].model)["coefficients"] == pytest.approx(list(solution), rel=1e-6)
    tree = json.loads(rows[1].model)["tree"]
    points = np.percentile(target, [25, 50, 75, 100])
    classes = [max(int(np.sum(points <= value)) - 1, 0) for value in target]
    inputs = [[float(fields[key]) for key in workload.inputs] for fields in used]
    wrong = sum(reference.classified(tree, row) != kind for row, kind in zip(inputs, classes, strict=True))
    assert wrong <= 2  # the greatest value alone is of a class of its own, too few for a leaf


def test_tree_of_the_benchmark_is_found_again() -> None:
    """The shipped tree for taxis splits at fares of 10 and 18.5; the shipped rows have the shares of its classes."""
    file = data_path("riotbench/taxi_dtc_training_rows.csv.gz")
    lines_read = [line.split(",") for line in reference.read_lines(file) if line]
    names = ["BAD", "GOOD", "VERYGOOD", "EXCELLENT"]
    rows = [[float(text) for text in line[:3]] for line in lines_read]
    tree = decision_tree(rows, [names.index(line[3]) for line in lines_read])
    wrong = sum(
        reference.classified(tree, row) != names.index(line[3]) for row, line in zip(rows, lines_read, strict=True)
    )
    assert wrong <= len(rows) // 100
    assert tree["attr"] == 2


def test_training_of_degenerate_rows() -> None:
    assert least_squares([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]], [2.0, 4.0, 6.0]) == pytest.approx([2.0, 0.0, 0.0])
    assert least_squares([[5.0], [5.0]], [1.0, 3.0]) == [0.0, 2.0]
    assert quartile_classes([1.0] * 4) == [3] * 4
    assert decision_tree([[1.0], [1.0]], [1, 0]) == {"leaf": True, "class_index": 0}


@pytest.mark.parametrize(
    ("builder", "stream", "metadata"), [(etl_city, "city", ""), (etl_taxi, "taxi", ""), (etl_fit, "fit", "")]
)
def test_etl_of_generated_messages(builder: Builder, stream: str, metadata: str) -> None:
    rows: Any = run_local(builder(plugin("example", stream=stream, count=200), metadata, collect))
    workload = {"city": CITY, "taxi": TAXI, "fit": FIT}[stream]
    assert [row.message for row in rows] == list(range(200))
    assert all(row[-1] is not None for row in rows)
    for name, (low, high) in workload.ranges.items():
        values = [row._asdict()[name] for row in rows if row._asdict()[name] not in (None, 0.0)]
        assert all(low <= value <= high for value in values)
        assert values


def test_generated_sensors_resemble_the_real_ones() -> None:
    """The 1,000 real messages at the same hour: temperature 20.6 ± 10.6, humidity 49.2 ± 15.7, dust median 798, air 24."""
    found: dict[str, list[float]] = defaultdict(list)
    missing = 0
    for line in stream_lines("city", count=5_400):
        for name, text in reference.parsed(line, "source")[2].items():
            if name in CITY.fields:
                missing += not text
                found[name] += [float(text)] if text else []
    assert 14 < np.mean(found["temperature"]) < 26
    assert 6 < np.std(found["temperature"]) < 14
    assert 38 < np.mean(found["humidity"]) < 60
    assert 8 < np.std(found["humidity"]) < 20
    assert 500 < np.median(found["dust"]) < 1_500
    assert 22 < np.median(found["airquality_raw"]) < 34
    assert np.median(found["light"]) < 400 < np.mean(found["light"]) < 1_500
    assert max(found["airquality_raw"]) > 200
    assert 0.005 < missing / (5 * 5_400) < 0.02
