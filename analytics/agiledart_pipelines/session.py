"""Spark session of a project: one JVM with a Connect server inside, and the project's catalog, which outlives it."""

import contextlib
import os
import signal
import time
import uuid
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from agiledart.spark import connected, first_cause, jvm_settings, kept_folder
from agiledart.spark_start import hold_server, is_server_kept, need_connect, stop_server
from agiledart_analytics.job_run import spark_errors
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_pipelines.project import DEFAULT_DATABASE, RUNNING, PipelineProject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JVM: Final = "jvm"
"""Document of the state folder with the process id of the session's JVM, which it keeps when this process is killed."""

LOOK_SECONDS: Final = 0.05

RETRIES: Final = 5
"""Repeated requests to a server that does not answer: 17 s, as each waits four times longer than the last, from 50 ms on."""

_SERVER: Final = "org.apache.spark.sql.connect.service.SparkConnectService$"


@contextlib.contextmanager
def open_session(project: PipelineProject, *, short: bool, keep: bool = False) -> "Any":
    """Open a session of a project: on the Spark that was kept for it, if there is one, since only one can open the catalog.

    The JVM of a killed process is ended first, and a kept server on which its update still runs. Two updates on the same
    checkpoints would repeat rows. The caller holds the project's lock.

    Args:
        short: start fast rather than run fast.
        keep: leave Spark running for the next session.

    Raises `OperationFailed` for a project that was moved or copied, and without Java or a package.
    """
    project.check_place()
    end_orphan(project)
    folder = _server_folder(project)
    if project.read_document(RUNNING) is not None:
        if is_server_kept(folder):
            stop_server(folder)
        project.write_document(RUNNING, None)
    chosen = kept_pipeline_session if keep or is_server_kept(folder) else partial(pipeline_session, short=short)
    with chosen(project) as session:
        yield session


def has_kept_spark(project: PipelineProject) -> bool:
    """Return whether Spark was left running for a project."""
    return is_server_kept(_server_folder(project))


@contextlib.contextmanager
def pipeline_session(project: PipelineProject, *, short: bool) -> "Any":
    """Start Spark for a project, and stop it at the end.

    Pipelines exist in Spark Connect only. The server runs in the JVM of this process and listens on the loopback interface, on
    a port of its own, with a random token. Settings of the specification that a session cannot change any more are set here.

    Args:
        short: start fast rather than run fast.

    Raises `OperationFailed` without Java or a package.
    """
    need_connect("agiledart pipeline")
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession as ClassicSession

    settings = {
        **_catalog(project, jvm_settings(log_file=str(project.state / "spark.log"), short=short)),
        "spark.app.name": f"agiledart pipeline {project.name}",
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.artifact.isolation.enabled": "true",
        "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
        "spark.sql.connect.serverStacktrace.enabled": "false",
        **project.configuration,
    }
    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = str(uuid.uuid4())
    try:
        context = SparkContext(conf=SparkConf().setAll(list(settings.items())))
        ClassicSession(context)  # kept by pyspark, so that it is not collected
        gateway: Any = context._gateway
        project.write_document(JVM, {"pid": gateway.proc.pid})
        server: Any = context._jvm
        scala_object = server.__getattr__(_SERVER).__getattr__("MODULE$")  # its name is no Python name
        port = int(scala_object.localPort())
    except Exception as error:  # it comes from Java or Py4J
        raise OperationFailed(f"Spark does not start: {first_cause(str(error)) or type(error).__name__}") from error
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession

        with spark_errors():
            session = SparkSession.builder.remote(f"sc://localhost:{port}").getOrCreate()
            # A server in this process that does not answer is dead; pyspark would try for ten minutes.
            session.client.set_retry_policies([DefaultPolicy(max_retries=RETRIES)])
            warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]")  # the error that follows says it
            try:
                _create_database(session, project)
                yield session
            finally:
                session.stop()
    finally:
        del os.environ["SPARK_CONNECT_MODE_ENABLED"]
        _end(context)
        project.write_document(JVM, None)


def _end(context: Any) -> None:
    """Stop Spark and close the catalog: the JVM outlives its session, by ten seconds where it writes an archive of its classes."""
    from py4j.protocol import Py4JError

    jvm = context._jvm
    with contextlib.suppress(Py4JError, OSError):  # of a JVM that has died; Derby also reports its end as an error
        context.stop()
        jvm.java.sql.DriverManager.getConnection("jdbc:derby:;shutdown=true")


@contextlib.contextmanager
def kept_pipeline_session(project: PipelineProject) -> "Any":
    """Use the Spark server of a project that stays between commands, and start it if there is none.

    Raises `OperationFailed` where pyspark has no such server.
    """
    from pyspark.sql import SparkSession

    used = hold_server(_server_folder(project))
    settings = {**_catalog(project, jvm_settings(log_file=str(project.state / "spark.log"))), **project.configuration}
    master = settings.pop("spark.master")
    try:
        session = connected(SparkSession.builder.remote(master), settings, "kept")
        with spark_errors():
            try:
                _check_settings(session, project)
                _create_database(session, project)
                yield session
            finally:
                session.stop()
    finally:
        used.close()


def _server_folder(project: PipelineProject) -> Path:
    return kept_folder() / f"pipeline-{crc32(str(project.root).encode()):08x}"


def end_orphan(project: PipelineProject) -> None:
    """End the JVM of a process of this project that was killed: it writes on until it notices. The caller holds the lock.

    Linux only; elsewhere the JVM ends by itself within seconds.
    """
    document = project.read_document(JVM)
    if document is None:
        return
    command = Path(f"/proc/{document['pid']}/cmdline")

    def is_alive() -> bool:
        with contextlib.suppress(OSError):
            return (
                str(project.state).encode() in command.read_bytes()
            )  # else the number belongs to another process by now
        return False

    while is_alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(document["pid"], signal.SIGKILL)
        time.sleep(LOOK_SECONDS)
    project.write_document(JVM, None)


def runtime_configuration(session: "SparkSession", project: PipelineProject) -> dict[str, str]:
    """Return the settings of the specification that a run can set; the others were set when Spark started."""
    return {name: value for name, value in project.configuration.items() if session.conf.isModifiable(name)}


def _create_database(session: Any, project: PipelineProject) -> None:
    if project.database != DEFAULT_DATABASE:
        session.sql(f"CREATE DATABASE IF NOT EXISTS `{project.database}`").collect()


def _check_settings(session: "SparkSession", project: PipelineProject) -> None:
    """Refuse settings of the specification that a server which runs already was started without and can't take any more."""
    for name, value in project.configuration.items():
        is_of_the_start = name.startswith("spark.") and not session.conf.isModifiable(name)
        if is_of_the_start and session.conf.get(name, None) != value:
            raise ConfigurationError(
                f"{project.specification}: {name} counts from the start of Spark, and the one that was kept runs without it. "
                f"End it first:  agiledart spark stop"
            )


def _catalog(project: PipelineProject, settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings with a catalog in the project's folder: Spark's default one is in memory, and a second run would fail."""
    place = f"jdbc:derby:;databaseName={project.state / 'catalog'};create=true"
    options = "spark.driver.extraJavaOptions"
    return {
        **settings,
        options: f'{settings[options]} "-Dderby.stream.error.file={project.state / "derby.log"}"',
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(project.warehouse),
        "spark.hadoop.javax.jdo.option.ConnectionURL": place,
        "spark.hadoop.javax.jdo.option.ConnectionDriverName": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
        "spark.hadoop.hive.metastore.schema.verification": "false",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
    }
