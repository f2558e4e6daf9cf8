"""Spark's own servers as processes: a standalone master with its workers, and a Spark Connect server."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from agiledart.spark import find_java
from tests.e2e.mesh import wait_for
from tests.ports import lasting_port

HOME = Path(pyspark.__file__).parent
START_SECONDS = 300.0

BARE = "AGILEDART_TEST_BARE"
"""Set where workers run: `bare_python` has no package agiledart there."""

NEEDED = (
    *("pyspark", "py4j", "pyarrow", "pandas", "numpy", "numpy.libs", "dateutil", "pytz", "tzdata", "six.py"),
    *("msgspec", "cryptography", "cffi", "_cffi_backend*"),
)
"""Executors' own requirements when the package is shipped to them."""


def environment() -> dict[str, str]:
    """For Spark's processes on this machine."""
    return {
        **os.environ, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "600m", BARE: "1",
    }  # fmt: skip


@contextlib.contextmanager
def process(log: Path, *command: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process of Spark's in a group of its own, which is killed at the end."""
    with log.open("wb") as out:
        made = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment(), start_new_session=True
        )
        try:
            yield made
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(made.pid, signal.SIGKILL)
            made.wait()


@dataclass
class Standalone:
    """A master's URL and the process ids of its workers."""

    url: str
    workers: Sequence[int]


@contextlib.contextmanager
def standalone(folder: Path, count: int = 2) -> Iterator[Standalone]:
    """A master and so many workers of one core each."""
    url = f"spark://127.0.0.1:{lasting_port()}"
    start = str(HOME / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            process(
                folder / "master.log", start, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port",
                url.rpartition(":")[2], "--webui-port", "0",
            )
        )  # fmt: skip
        wait_for_text(folder / "master.log", "I have been elected leader")
        workers = [
            stack.enter_context(
                process(
                    folder / f"worker{number}.log", start, f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--cores",
                    "1", "--memory", "1200m", "--webui-port", "0", "--work-dir", str(folder / f"work{number}"), url,
                )
            ).pid
            for number in range(1, count + 1)
        ]  # fmt: skip
        for number in range(1, count + 1):
            wait_for_text(folder / f"worker{number}.log", "Successfully registered with master")
        yield Standalone(url, workers)


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A Spark Connect server on two local cores; its URL."""
    port = lasting_port()
    log = folder / "connect.log"
    with process(
        log, str(HOME / "bin" / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
        "--master", "local[2,4]", "--conf", f"spark.connect.grpc.binding.port={port}",
        "--conf", "spark.connect.grpc.binding.address=127.0.0.1", "--conf", "spark.ui.enabled=false",
        "--conf", "spark.sql.shuffle.partitions=2",
    ) as server:  # fmt: skip

        def listens() -> bool:
            assert server.poll() is None, log.read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return True
            return False

        wait_for(listens, START_SECONDS, "the Connect server listens")
        yield f"sc://127.0.0.1:{port}"


def wait_for_text(log: Path, text: str) -> None:
    wait_for(lambda: text in log.read_text(errors="replace"), START_SECONDS, f"{log.name} says: {text}")


def bare_python(folder: Path) -> Path:
    """This Python for drivers; on workers one that has what executors need, and not the package."""
    site = folder / "site"
    site.mkdir(parents=True)
    installed = Path(pyspark.__file__).parents[1]
    for pattern in NEEDED:
        for path in installed.glob(pattern):
            (site / path.name).symlink_to(path)
    program = folder / "python"
    program.write_text(
        f'#!/bin/sh\n[ -z "${BARE}" ] && exec {sys.executable} "$@"\n'
        f'PYTHONPATH="{site}:$PYTHONPATH" exec {sys.executable} -S "$@"\n'
    )
    program.chmod(0o755)
    return program
