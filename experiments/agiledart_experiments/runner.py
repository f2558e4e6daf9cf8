"""Runs one experiment and turns its report into the document that the command line prints."""

import resource
import time
from dataclasses import asdict
from typing import Any

from agiledart_experiments.registry import Experiment
from agiledart_experiments.report import Report, Settings
from agiledart_kernel.errors import ConfigurationError


def run_experiment(experiment: Experiment, settings: Settings) -> tuple[Report, dict[str, Any]]:
    """The report, and the same as a JSON document with what the run cost this process.

    `cpu_seconds` is that of this run; `memory_mb` the largest resident size of the process so far.

    Raises:
        ConfigurationError: sizes are wanted, and it has none, or they are none.
    """
    if settings.sizes and not experiment.has_sizes:
        raise ConfigurationError(f"--sizes: {experiment.name} runs at the sizes of its scale only.")
    if any(size < 2 for size in settings.sizes):
        raise ConfigurationError(f"--sizes {min(settings.sizes)}: the least size is 2.")
    started = time.process_time()
    report = experiment.run(settings)
    spent = time.process_time() - started
    return report, {
        "experiment": experiment.name,
        "answers": experiment.answers,
        "source": experiment.source,
        "seed": settings.seed,
        "scale": settings.scale,
        "parameters": dict(report.parameters),
        "results": list(report.rows),
        "goals": [asdict(goal) for goal in report.goals],
        "passed": report.passed,
        "notes": list(report.notes),
        "cpu_seconds": round(spent, 2),
        "memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
