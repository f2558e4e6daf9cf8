"""`StormCluster`: a node of Apache Storm on this machine: ZooKeeper, nimbus, supervisor, and a process for each worker.

Storm's daemons listen on all interfaces of the machine, which no setting changes.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agiledart_experiments.process_figures import with_descendants
from agiledart_experiments.storm.storm_installation import StormInstallation
from agiledart_kernel.errors import OperationFailed

SLOTS: Final = 6
HEAP: Final = "-Xmx256m"
"""Heap of each process; Storm's defaults are 768 MB to 1 GB."""

START_SECONDS: Final = 90.0
COMMAND_SECONDS: Final = 120.0
END_SECONDS: Final = 10.0

_ZOOKEEPER: Final = "org.apache.storm.shade.org.apache.zookeeper.server.ZooKeeperServerMain"
_NIMBUS: Final = "org.apache.storm.daemon.nimbus.Nimbus"
_SUPERVISOR: Final = "org.apache.storm.daemon.supervisor.Supervisor"
_APPLICATIONS: Final = "StormApplications"
_LOGGING: Final = """<configuration status="error">
<appenders><Console name="C"><PatternLayout pattern="%d %c{1} %p %m%n"/></Console></appenders>
<loggers><root level="warn"><appender-ref ref="C"/></root></loggers></configuration>
"""


class StormCluster:
    """A cluster with its files in a folder.

    Args:
        folder: an empty one.
        installation: jars and topologies.
    """

    def __init__(self, folder: Path, installation: StormInstallation) -> None:
        self._folder, self._installation = folder, installation
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._logs = folder / "logs"
        zookeeper, nimbus, *slots = _free_ports(2 + SLOTS)
        self._zookeeper_port = zookeeper
        for name in ("conf", "log4j2", "logs", "local", "zookeeper", "extlib", "extlib-daemon"):
            (folder / name).mkdir()
        for name in ("lib", "lib-worker"):
            (folder / name).symlink_to(installation.jars)
        for name in ("cluster.xml", "worker.xml"):
            (folder / "log4j2" / name).write_text(_LOGGING)
        settings = {
            "storm.zookeeper.servers": ["127.0.0.1"],
            "storm.zookeeper.port": zookeeper,
            "nimbus.seeds": ["127.0.0.1"],
            "nimbus.thrift.port": nimbus,
            "storm.local.hostname": "127.0.0.1",
            "storm.local.dir": str(folder / "local"),
            "storm.log.dir": str(self._logs),
            "supervisor.slots.ports": slots,
            "worker.heap.memory.mb": 256,
            "worker.childopts": f"{HEAP} -XX:+UseSerialGC",
            "topology.worker.logwriter.childopts": "-Xmx32m",
        }
        # JSON is YAML
        (folder / "conf" / "storm.yaml").write_text(json.dumps(settings))
        (folder / "zoo.cfg").write_text(
            f"tickTime=2000\ndataDir={folder / 'zookeeper'}\nclientPort={zookeeper}\nclientPortAddress=127.0.0.1\n"
            "admin.enableServer=false\nmaxClientCnxns=0\n"
        )

    def start(self) -> None:
        """Start the daemons and wait until nimbus answers. Raises `OperationFailed`."""
        self._daemon(_ZOOKEEPER, str(self._folder / "zoo.cfg"))
        _wait_for_port(self._zookeeper_port)
        self._daemon(_NIMBUS)
        self._daemon(_SUPERVISOR)
        try:
            self._command(_APPLICATIONS, "wait")
        except subprocess.TimeoutExpired:
            logs = "\n".join(file.read_text()[-1000:] for file in self._logs.glob("*.log"))
            raise OperationFailed(f"Storm does not start; its logs:\n{logs}") from None

    def stop(self) -> None:
        """End all processes of the cluster."""
        processes = with_descendants(self.roots)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, number)
            end = time.monotonic() + END_SECONDS
            while with_descendants(processes) and time.monotonic() < end:
                for daemon in self._daemons:
                    daemon.poll()
                time.sleep(0.1)

    @property
    def roots(self) -> list[int]:
        """Return the processes that have started all others."""
        return [daemon.pid for daemon in self._daemons]

    def submit(self, application: str, name: str, port: int, results: Path, metadata: Path, workers: int) -> None:
        """Start a topology. Raises `OperationFailed` when nimbus refuses it."""
        words = (application, name, str(port), str(results), str(metadata), str(workers))
        done = self._command(_APPLICATIONS, *words)
        if done.returncode:
            raise OperationFailed(f"Storm did not take {application}:\n{(done.stdout + done.stderr)[-2000:]}")

    def kill(self, name: str) -> None:
        """End a topology at once."""
        self._command(_APPLICATIONS, "kill", name)

    def _java(self, *options: str) -> list[str]:
        home = self._folder
        return [
            self._installation.java,
            *(HEAP, "-XX:+UseSerialGC", f"-Dstorm.home={home}", f"-Dstorm.log.dir={self._logs}"),
            *(
                "-Dstorm.conf.file=",
                "-Dstorm.options=",
                f"-Dlog4j2.configurationFile={home / 'log4j2' / 'cluster.xml'}",
            ),
            *(f"-Dstorm.jar={self._installation.topologies}", *options),
            *("-cp", f"{home}/lib/*:{self._installation.topologies}:{home / 'conf'}"),
        ]

    def _daemon(self, main: str, *words: str) -> None:
        with (self._logs / f"{main.rpartition('.')[2]}.log").open("ab") as log:
            daemon = subprocess.Popen([*self._java(), main, *words], cwd=self._folder, stdout=log, stderr=log)
        self._daemons.append(daemon)

    def _command(self, main: str, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self._java(), main, *words], cwd=self._folder, capture_output=True, text=True, check=False,
            timeout=COMMAND_SECONDS,
        )  # fmt: skip


def _free_ports(count: int) -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(server.getsockname()[1]) for server in servers]
    for server in servers:
        server.close()
    return ports


def _wait_for_port(port: int) -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise OperationFailed(f"nothing of Storm listens on port {port} after {START_SECONDS:.0f} s") from None
            time.sleep(0.1)


@contextlib.contextmanager
def storm_cluster(folder: Path, installation: StormInstallation) -> Iterator[StormCluster]:
    """Start a cluster in a new folder, and end it afterwards."""
    folder.mkdir(parents=True)
    cluster = StormCluster(folder, installation)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
