"""Runner of topologies inside tests: `assert run_local(room_temperatures(readings=[…], report=collect)) == […]`."""

from collections.abc import Mapping
from typing import Any

from agiledart_dataflow.graph.topology import Topology
from agiledart_executor.local_runs.local_run import run_topology


def run_file(target: str, *, parallelism: int = 1, **settings: str) -> list[Any] | dict[str, list[Any]]:
    """Run `FILE.py:NAME`, or a file of SQL or YAML, to the end of its input, as `agiledart run` does, and return the results.

    Args:
        target: as on the command line; relative paths start at the current folder.
        parallelism: instances of every stage that can have several.
        settings: values of parameters, as `--set` takes them; `collect` for the sinks whose rows are returned.

    Returns:
        The rows of the only `collect` sink, or rows by name of sink when there are several.
    """
    from pathlib import Path

    from agiledart_executor.user_code.user_builder import build, load_builder

    given = {name: "collect:" if text == "collect" else text for name, text in settings.items()}
    return run_local(build(load_builder(target), given, Path.cwd()), parallelism=parallelism)


def run_local(
    topology: Topology, *, parallelism: int | Mapping[str, int | tuple[int, int]] = 1, schedule_seed: int | None = None
) -> list[Any] | dict[str, list[Any]]:
    """Run to the end of the input and return what reached the `collect` sinks.

    Args:
        topology: the topology to run.
        parallelism: instances of every stage that can have several, or by name of a step; must not change the result.
        schedule_seed: run the steps in an adverse order; must not change the result either.

    Returns:
        The rows of the only `collect` sink, or rows by name of sink when there are several.
    """
    collected = run_topology(topology, parallelism=parallelism, schedule_seed=schedule_seed).collected
    return next(iter(collected.values())) if len(collected) == 1 else collected
