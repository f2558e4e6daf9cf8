"""A Flink cluster of processes on this machine: a JobManager that has the job, and TaskManagers that can be killed and restarted.

The virtual machines are started as Flink's own scripts start them, but directly: a process here is the very process that is killed.
"""

import contextlib
import json
import socket
import subprocess
import time
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agiledart_experiments.recovery.plug_mesh import until
from agiledart_kernel.errors import OperationFailed
from benchmarks.engines import setup

JOB_CLASS: Final = "FlinkPlug"
START_TIMEOUT: Final = 180.0
END_TIMEOUT: Final = 10.0
ANSWER_SECONDS: Final = 60.0
"""Submitting runs the main method, which takes a while on a busy machine."""

_OPENED: Final = (
    "lang",
    "net",
    "io",
    "nio",
    "lang.reflect",
    "text",
    "time",
    "util",
    "util.concurrent",
    "util.concurrent.atomic",
)
_JVM: Final = (
    "java",
    "-XX:+UseG1GC",
    *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED),
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
_JAR: Final = "plug.jar"
_LOG4J: Final = """rootLogger.level = INFO
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1} %m%n
"""

BOTH: Final[Mapping[str, str]] = {
    "execution.checkpointing.mode": "EXACTLY_ONCE",
    "taskmanager.load-balance.mode": "SLOTS",
}
"""Settings of both forms: exactly-once, and tasks spread over the TaskManagers."""

DEFAULTS: Final[Mapping[str, str]] = {}
"""Defaults: heartbeats of 10 s, a timeout of 50 s, a restart after 1 s (exponential), buffers of 100 ms, state in the heap."""

TUNED: Final[Mapping[str, str]] = {
    "heartbeat.interval": "500 ms",
    "heartbeat.timeout": "10 s",
    "heartbeat.rpc-failure-threshold": "1",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "500 ms",
    "execution.buffer-timeout.interval": "5 ms",
    "state.backend.type": "rocksdb",
    "execution.checkpointing.incremental": "true",
}
"""Fastest settings known. Flink gives up a dead TaskManager at the first heartbeat that cannot be delivered. RocksDB takes its
files from the checkpoint as they are, where the heap store reads every record, byte by byte.
"""


@contextlib.contextmanager
def flink_cluster(folder: Path, slots: int, interval: int, settings: Mapping[str, str]) -> Iterator["FlinkCluster"]:
    """Yield a cluster with its files in this folder and no process running yet; end all its processes afterwards.

    Raises:
        MissingError: Java or Flink is not there.
    """
    ports = free_ports(2)
    (folder / "log4j.properties").write_text(_LOG4J)
    options = {
        "jobmanager.rpc.address": "127.0.0.1",
        "jobmanager.rpc.port": str(ports[0]),
        "jobmanager.bind-host": "127.0.0.1",
        "rest.address": "127.0.0.1",
        "rest.bind-address": "127.0.0.1",
        "rest.port": str(ports[1]),
        "rest.bind-port": str(ports[1]),
        "taskmanager.host": "127.0.0.1",
        "taskmanager.bind-host": "127.0.0.1",
        "taskmanager.numberOfTaskSlots": str(slots),
        "taskmanager.cpu.cores": str(float(slots)),
        "taskmanager.memory.task.heap.size": "768m",
        "taskmanager.memory.task.off-heap.size": "0m",
        "taskmanager.memory.managed.size": "256m",
        "taskmanager.memory.network.min": "64m",
        "taskmanager.memory.network.max": "64m",
        "taskmanager.memory.framework.heap.size": "128m",
        "taskmanager.memory.framework.off-heap.size": "128m",
        "taskmanager.memory.jvm-metaspace.size": "256m",
        "taskmanager.memory.jvm-overhead.min": "192m",
        "taskmanager.memory.jvm-overhead.max": "192m",
        "io.tmp.dirs": str(folder),
        "web.upload.dir": str(folder),
        "execution.checkpointing.interval": f"{interval} s",
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        **BOTH,
        **settings,
    }
    (folder / "config.yaml").write_text("".join(f"{name}: {value}\n" for name, value in options.items()))
    (folder / "flink-web-upload").mkdir()
    with zipfile.ZipFile(folder / "flink-web-upload" / _JAR, "w") as jar:
        for compiled in (setup.FOLDER / "flink" / "classes").glob(f"{JOB_CLASS}*.class"):
            jar.write(compiled, compiled.name)
    cluster = FlinkCluster(folder, ports[1])
    try:
        yield cluster
    finally:
        cluster.end()


def free_ports(count: int) -> list[int]:
    """Return ports on which no process listens now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


@dataclass
class FlinkCluster:
    """Processes of a cluster; made by `flink_cluster`.

    Attributes:
        folder: of configuration, logs, checkpoints and the sink's files.
        port: of the REST interface.
    """

    folder: Path
    port: int
    _job_manager: "subprocess.Popen[bytes] | None" = None
    _task_managers: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)

    def start(self, job: Sequence[str], task_managers: Sequence[str]) -> None:
        """Start all processes, then the job; wait until all its tasks run. Raises `OperationFailed` when that takes too long.

        The job comes last, because the first TaskManager would get all of it if the second were late.
        """
        entry = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
        self._job_manager = self._java("jobmanager", "1024m", [entry, "--configDir", str(self.folder)])
        for name in task_managers:
            self.start_task_manager(name)
        until(
            lambda: self._has(len(task_managers)) or None,
            START_TIMEOUT,
            f"Flink's processes are up; see {self.folder}/*.log",
        )
        self.ask(f"/jars/{_JAR}/run", {"entryClass": JOB_CLASS, "programArgsList": list(job)})
        until(lambda: self._is_running() or None, START_TIMEOUT, f"Flink runs the job; see {self.folder}/*.log")

    def start_task_manager(self, name: str) -> None:
        """Start a TaskManager, which registers its slots itself."""
        words = ["org.apache.flink.runtime.taskexecutor.TaskManagerRunner", "--configDir", str(self.folder)]
        self._task_managers[name] = self._java(name, "1024m", [*words, "-D", f"taskmanager.resource-id={name}"])

    def _java(self, name: str, heap: str, words: Sequence[str]) -> "subprocess.Popen[bytes]":
        options = (f"-Xms{heap}", f"-Xmx{heap}", f"-Dlog4j2.configurationFile={self.folder / 'log4j.properties'}")
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [*_JVM, *options, "-cp", setup.flink_classpath(), *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill_task_manager(self, name: str) -> None:
        """Kill a TaskManager at once, by SIGKILL."""
        process = self._task_managers.pop(name)
        process.kill()
        process.wait()

    def ask(self, path: str, body: object = None) -> Any:
        """Return the answer of the REST interface. Raises `OperationFailed` when there is none."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return json.load(answer)
        except (OSError, ValueError) as error:
            raise OperationFailed(f"Flink does not answer {path}: {error}; see {self.folder}/jobmanager.log") from None

    @property
    def job(self) -> str:
        """Return the job's id. Raises `OperationFailed` while there is none."""
        jobs = self.ask("/jobs")["jobs"]
        if not jobs:
            raise OperationFailed("Flink has no job yet")
        number: str = jobs[0]["id"]
        return number

    def _has(self, task_managers: int) -> bool:
        for process in (self._job_manager, *self._task_managers.values()):
            if process is not None and process.poll() is not None:
                raise OperationFailed(f"a process of Flink ended with {process.returncode}; see {self.folder}/*.log")
        with contextlib.suppress(OperationFailed):
            registered: int = self.ask("/overview")["taskmanagers"]
            return registered == task_managers
        return False

    def _is_running(self) -> bool:
        with contextlib.suppress(OperationFailed):
            vertices = self.ask(f"/jobs/{self.job}")["vertices"]
            return bool(vertices) and all(vertex["status"] == "RUNNING" for vertex in vertices)
        return False

    def checkpoints(self) -> int:
        """Return how many checkpoints have been completed since the job began."""
        count: int = self._checkpoints()["counts"]["completed"]
        return count

    def last_began_ms(self) -> int:
        """Return when the last completed checkpoint began, in ms of the machine's clock; 0 before any."""
        last = self._checkpoints()["latest"]["completed"]
        began: int = last["trigger_timestamp"] if last else 0
        return began

    def _checkpoints(self) -> Any:
        return self.ask(f"/jobs/{self.job}/checkpoints")

    def hosts(self) -> dict[str, list[str]]:
        """Return the names of the TaskManagers that run each vertex, by the vertex's name."""
        managers: dict[str, list[str]] = {}
        for vertex in self.ask(f"/jobs/{self.job}")["vertices"]:
            tasks = self.ask(f"/jobs/{self.job}/vertices/{vertex['id']}")["subtasks"]
            managers[vertex["name"]] = [task["taskmanager-id"] for task in tasks]
        return managers

    def stop_job(self) -> None:
        """Stop the job by a savepoint, with results for all that its source has read."""
        job = self.job
        self.ask(f"/jobs/{job}/stop", {"targetDirectory": (self.folder / "savepoints").as_uri(), "drain": False})

        def has_ended() -> bool | None:
            return True if self.ask(f"/jobs/{job}")["state"] == "FINISHED" else None

        until(has_ended, START_TIMEOUT, f"Flink stops the job; see {self.folder}/jobmanager.log")

    def end(self) -> None:
        """End all processes of the cluster."""
        processes = [process for process in (*self._task_managers.values(), self._job_manager) if process is not None]
        for process in processes:
            process.terminate()
        until_end = time.monotonic() + END_TIMEOUT
        for process in processes:
            try:
                process.wait(max(0.0, until_end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
