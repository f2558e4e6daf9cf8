"""An executor stays small: its process loads neither the overlay nor cryptography nor anything for people."""

import subprocess
import sys

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


def test_a_worker_loads_only_what_it_needs() -> None:
    script = "import sys, agiledart_executor.programs.worker; print(*sorted(m for m in sys.modules if '.' not in m))"
    ran = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    loaded = ran.stdout.split()
    assert "agiledart_dataflow" in loaded
    assert not set(FORBIDDEN) & set(loaded)


def test_an_agent_loads_no_user_side_library() -> None:
    script = "import sys, agiledart_agent.daemon; print(*sorted(m for m in sys.modules if '.' not in m))"
    ran = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert not set(ran.stdout.split()) & {"click", "rich", "numpy", "pyarrow", "pyspark", "agiledart_cli"}


def test_an_agent_loads_nothing_that_only_executors_need() -> None:
    script = "import sys, agiledart_agent.daemon; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    theirs = ("graph", "operators", "aggregation", "expressions")
    wrong = [
        name for name in ran.stdout.split() if name.startswith(tuple(f"agiledart_dataflow.{part}" for part in theirs))
    ]
    wrong += [
        name
        for name in ran.stdout.split()
        if name.startswith(("agiledart_shuffle.policies.", "agiledart_executor.programs.worker"))
    ]
    assert not wrong, "an idle agent weighs some megabytes more"
