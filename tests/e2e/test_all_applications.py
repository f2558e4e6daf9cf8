"""Every shipped application gives on five agents what it gives in one process, at parallelism 1 to 4.

Sources and sinks are spread over the agents. Urban sensing also reads a file, which its steps take by columns.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agiledart_dataflow.plan.connectors import Connector
from agiledart_examples.generated_streams import generate
from agiledart_executor.user_code.user_builder import load_builder
from tests.e2e.mesh import Mesh, cli, mesh

pytestmark = pytest.mark.e2e

AGENTS = 5
POOL = "agiledart_examples.storm_pool:"
RIOT = "agiledart_examples.riotbench:"
APPLICATIONS = [
    *(
        RIOT + name
        for name in ("etl_city", "etl_taxi", "etl_fit", "pred_city", "pred_taxi", "stats_cities", "stats_city")
    ),
    *(RIOT + name for name in ("train_city", "train_taxi")),
    *(POOL + name for name in ("exclamation", "word_count", "sliding_window", "sliding_tuple_ts", "single_join")),
    *(POOL + name for name in ("join_bolt", "lambda_topology", "prefix", "remove_duplicates", "top_k", "word_count_4")),
    *("agiledart_examples.debs2015:frequent_routes", "agiledart_examples.debs2015:profitable_areas"),
    "agiledart_examples.urban_sensing:urban_sensing",
    "agiledart_examples.equipment_effectiveness:manufacturing",
]
MACHINES = {"machine-availability": 1_500, "machine-production": 300, "machine-temperature": 3_000}
COUNTS = {**MACHINES, "urban": 3_000, "taxi": 800, "city": 400, "fit": 200, "cities": 200}
FEW = [(POOL + "word_count", 4), ("agiledart_examples.urban_sensing:urban_sensing", 2)]
"""Applications with an instance number for `make test`; the soak has all of both."""

ENDLESS = 400
"""Lines of other streams."""


@pytest.fixture(scope="module")
def five() -> Iterator[Mesh]:
    with mesh(AGENTS) as made:
        yield made


def settings_of(target: str, folder: Path, *, spread: bool, columns: bool = False) -> tuple[list[str], list[Path]]:
    """The options of the command line for all sources and sinks, and the files of the sinks."""
    words: list[str] = []
    files: list[Path] = []
    node = 0
    for name, parameter in load_builder(target).parameters.items():
        default: Any = parameter.default
        if not isinstance(default, Connector) or default.kind == "null":
            continue
        node += 1
        at = f"@a{node % AGENTS + 1}" if spread else ""
        if default.kind == "csv":
            file = folder / f"{name}.csv"
            files.append(file)
            words += ["--set", f"{name}=csv:{file}{at}"]
            continue
        stream = default.option("stream") or default.kind
        options = {"count": str(COUNTS.get(stream, ENDLESS)), **dict(default.options)}
        if stream == "urban":
            options["sensors"] = "300"
        text = "&".join(f"{key}={value}" for key, value in options.items())
        source = f"{default.kind}:?{text}"
        if columns:
            given = folder / f"{name}-input.csv"
            given.write_text("\n".join(generate(stream, 1, int(options["count"]), int(options["sensors"]))) + "\n")
            source = f"csv:{given}"
        words += ["--set", f"{name}={source}{at}"]
    return words, files


def rows_of(file: Path, target: str) -> list[list[str]]:
    """Rows of a result, sorted; the last column of the taxi queries and of manufacturing is a delay."""
    rows = [line.split(",") for line in file.read_text().splitlines()]
    return sorted(row[:-1] if "debs2015" in target or "equipment" in target else row for row in rows)


def rows_of_one_process(target: str, folder: Path) -> list[list[list[str]]]:
    """Results of one process."""
    words, files = settings_of(target, folder, spread=False)
    ran = cli("run", target, *words, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    results = [rows_of(file, target) for file in files]
    assert any(results), f"{target} has no results"
    return results


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[list[str]]]]:
    """Results of one process for all applications."""
    return {target: rows_of_one_process(target, tmp_path_factory.mktemp("one")) for target in APPLICATIONS}


@pytest.mark.parametrize(("target", "parallelism"), FEW, ids=lambda value: str(value).rpartition(":")[2])
def test_several_instances_on_five_agents_give_the_rows_of_one_process(
    target: str, parallelism: int, five: Mesh, tmp_path: Path
) -> None:
    (alone := tmp_path / "alone").mkdir()
    (together := tmp_path / "together").mkdir()
    run_on(five, target, parallelism, together, {target: rows_of_one_process(target, alone)}, columns=False)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
@pytest.mark.parametrize("target", APPLICATIONS, ids=lambda target: target.partition(":")[2])
def test_five_agents_give_the_rows_of_one_process(
    target: str, parallelism: int, five: Mesh, expected: dict[str, list[list[list[str]]]], tmp_path: Path
) -> None:
    run_on(five, target, parallelism, tmp_path, expected, columns=False)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_columns_and_rows_give_the_same_results(
    parallelism: int, five: Mesh, expected: dict[str, list[list[list[str]]]], tmp_path: Path
) -> None:
    run_on(five, "agiledart_examples.urban_sensing:urban_sensing", parallelism, tmp_path, expected, columns=True)


def run_on(five: Mesh, target: str, parallelism: int, folder: Path, expected: Any, *, columns: bool) -> None:
    """Submit to the end; compare."""
    words, files = settings_of(target, folder, spread=True, columns=columns)
    name = f"{target.partition(':')[2].replace('_', '-')}-{parallelism}-{'columns' if columns else 'rows'}"
    agent = str(five.agents[0].state_dir)
    ran = cli(
        *(
            "submit",
            target,
            "--name",
            name,
            "--parallelism",
            str(parallelism),
            "--agent",
            agent,
            "--wait",
            "-o",
            "json",
        ),
        *words,
        cwd=folder,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["state"] == "finished"
    assert [rows_of(file, target) for file in files] == expected[target]
