"""An executor stays small: its process loads neither the overlay nor cryptography nor anything for people."""

import subprocess
import sys
from pathlib import Path

import pytest

FORBIDDEN = (
    "agiledart_agent",
    "agiledart_cli",
    "agiledart_node",
    "agiledart_overlay",
    "click",
    "cryptography",
    "libp2p",
    "numpy",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "rich",
)


def test_a_worker_loads_no_unneeded_module() -> None:
    script = "import sys, agiledart_executor.programs.worker; print(*sorted(m for m in sys.modules if '.' not in m))"
    ran = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    loaded = ran.stdout.split()
    assert "agiledart_dataflow" in loaded
    assert not set(FORBIDDEN) & set(loaded)


def test_a_nursery_loads_nothing_large() -> None:
    script = (
        "import sys; from agiledart_executor.programs import nursery; nursery._warm_up()\n"
        "print(*sorted(m for m in sys.modules if '.' not in m))"
    )
    ran = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert not set(FORBIDDEN) & set(ran.stdout.split())


def test_a_log_that_gets_rows_loads_no_pyarrow(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    script = (
        "import sys\nfrom pathlib import Path\nfrom typing import NamedTuple\n"
        "from agiledart_connectors.logs.log_opener import open_sink\n"
        "from agiledart_connectors.sink_origin import SinkOrigin\n"
        "from agiledart_dataflow.plan.connectors import Connector\n"
        "class Reading(NamedTuple):\n    sensor: str\n    value: float\n"
        f"origin = SinkOrigin('rooms', 1, Path({str(tmp_path)!r}))\n"
        "sink = open_sink(Connector('log', 'rooms'), Reading, lambda: 0, origin)\n"
        "print(type(sink).__name__)\n"
        "sink.write([Reading('a', 1.5)]); sink.close()\n"
        "print('pyarrow' in sys.modules, 'numpy' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True)
    assert ran.stdout.split() == ["ColumnLogSinkWriter", "False", "False"], ran.stderr


def test_an_agent_loads_no_user_side_library() -> None:
    script = "import sys, agiledart_agent.daemon; print(*sorted(m for m in sys.modules if '.' not in m))"
    ran = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert not set(ran.stdout.split()) & {"click", "rich", "numpy", "pyarrow", "pyspark", "agiledart_cli"}


NOT_WHEN_IDLE = (
    "agiledart_agent.metrics.prometheus_text",
    "agiledart_dataflow.aggregation",
    "agiledart_dataflow.expressions",
    "agiledart_dataflow.graph",
    "agiledart_dataflow.operators",
    "agiledart_executor.programs.worker",
    "agiledart_placement.baselines.along_path",
    "agiledart_placement.integer_programme",
    "agiledart_placement.latency_space.mopa",
    "agiledart_placement.local_search",
    "agiledart_placement.plan_answering",
    "agiledart_shuffle.policies",
    "argparse",
    "crc32c",
    "csv",
    "http.server",
    "importlib.metadata",
    "prometheus_client",
    "statistics",
    "tomllib",
    "zipfile",
    "zoneinfo",
)
"""Modules, with all that is in them, that an agent without applications and scrapes does not need."""


def test_an_idle_agent_loads_no_module_that_it_does_not_need() -> None:
    script = "import sys, agiledart_agent.daemon; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    wrong = [name for name in ran.stdout.split() if any(f"{name}.".startswith(f"{part}.") for part in NOT_WHEN_IDLE)]
    assert not wrong, "an idle agent weighs some megabytes more"
