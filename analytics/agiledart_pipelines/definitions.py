"""Definitions of a project's tables, as its transformations give them to Spark: edges, and errors that name the place."""

import contextlib
import io
import re
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agiledart_analytics.job_run import spark_sentence
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_pipelines.edges import ADVICE, TableRead, edges_of, lost_edges
from agiledart_pipelines.project import NAME, PipelineProject
from agiledart_pipelines.session import runtime_configuration
from agiledart_pipelines.sql_files import MATERIALIZED_VIEW, STREAMING_TABLE, place_of_error, sql_definitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class PipelineDefinitions:
    """Tables and flows of one run.

    Attributes:
        graph: Spark's id of the graph.
        streaming_tables, views: names of tables that are appended to, and of those that are computed anew.
        edges: table → what its flows read.
        places: flow → `file:line`, relative to the project.
    """

    graph: str
    streaming_tables: list[str] = field(default_factory=list)
    views: list[str] = field(default_factory=list)
    edges: dict[str, list[TableRead]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)

    @property
    def tables(self) -> list[str]:
        """Return the names of all tables."""
        return [*self.streaming_tables, *self.views]


def load_definitions(session: "SparkSession", project: PipelineProject) -> PipelineDefinitions:
    """Run a project's transformations, which define its tables, and check them.

    Raises:
        ConfigurationError: a transformation is wrong; the message names file, line and table.
        OperationFailed: Spark refuses a definition.
    """
    from pyspark.pipelines.cli import LibrariesGlob, PipelineSpec, register_definitions
    from pyspark.pipelines.output import MaterializedView, StreamingTable
    from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph

    configuration = runtime_configuration(session, project)
    libraries = [LibrariesGlob(pattern) for pattern in project.libraries]
    storage = (project.state / "storage").as_uri()
    specification = PipelineSpec(project.name, storage, None, project.database, configuration, libraries)
    graph = create_dataflow_graph(session, None, project.database, configuration)
    definitions = PipelineDefinitions(graph)
    client: Any = session.client

    class CheckedRegistry(SparkConnectGraphElementRegistry):
        """Registry of Spark that notes tables and edges."""

        def register_output(self, output: Any) -> None:
            place = _place(project.root, output.source_code_location)
            if isinstance(output, StreamingTable | MaterializedView):
                _check_name(output.name, place)
            if isinstance(output, StreamingTable):
                definitions.streaming_tables.append(output.name)
            elif isinstance(output, MaterializedView):
                definitions.views.append(output.name)
            with _naming(project.root, place, output.name):
                super().register_output(output)

        def register_flow(self, flow: Any) -> None:
            definitions.places[flow.name] = _place(project.root, flow.source_code_location)

            def func() -> Any:
                frame = _checked_frame(flow.func())
                definitions.edges.setdefault(flow.target, []).extend(edges_of(frame._plan.plan(client)))
                return frame

            with _naming(project.root, definitions.places[flow.name], flow.target):
                super().register_flow(replace(flow, func=func))

        def register_sql(self, sql_text: str, file_path: Path) -> None:
            _note_sql(definitions, sql_text, file_path)
            try:
                super().register_sql(sql_text, file_path)
            except Exception as error:  # Spark's errors have many classes
                line, table = place_of_error(sql_text, str(error))
                place = f"{file_path}:{line}" if line else str(file_path)
                raise _in_words(project.root, error, place, table) from error

    try:
        with _quiet():
            register_definitions(project.specification, CheckedRegistry(session, graph), specification, session, graph)
    except (ConfigurationError, OperationFailed):
        raise
    except Exception as error:  # users' code and Spark's errors have many classes
        raise _in_words(project.root, error, "", "") from error
    if not definitions.tables:
        raise ConfigurationError(f"{project.specification}: its libraries define no table.")
    _check_edges(definitions)
    return definitions


def _note_sql(definitions: PipelineDefinitions, text: str, file: Path) -> None:
    """Note tables and edges of a SQL file, which Spark's server keeps for itself."""
    for defined in sql_definitions(text):
        if defined.kind in (STREAMING_TABLE, MATERIALIZED_VIEW):
            _check_name(defined.name, f"{file}:{defined.line}")
        if defined.kind == STREAMING_TABLE:
            definitions.streaming_tables.append(defined.name)
        elif defined.kind == MATERIALIZED_VIEW:
            definitions.views.append(defined.name)
        definitions.places[defined.name] = f"{file}:{defined.line}"
        reads = [TableRead(read.table, read.is_stream) for read in defined.reads]
        definitions.edges.setdefault(defined.target, []).extend(reads)


def _check_name(name: str, place: str) -> None:
    """Refuse a name that the catalog changes, or that has a database in it: the table's files would not be where its name says."""
    if not NAME.match(name):
        raise ConfigurationError(
            f"{place}, table {name}: name a table by small letters, digits and _, such as {_plain(name)}."
        )


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9_]+", "_", name.rpartition(".")[2].lower()).strip("_") or "trips"


def _check_edges(definitions: PipelineDefinitions) -> None:
    for table, read in definitions.edges.items():
        view = next((edge.table for edge in read if edge.is_stream and edge.table in definitions.views), "")
        if view:
            raise ConfigurationError(
                f"{definitions.places.get(table, table)}, table {table}: it reads the view {view} as a stream. An update computes "
                f"a view anew, so a stream would get its rows again and again. Read the table below it, or make {table} a view."
            )
    for table, edges in lost_edges(definitions.edges, definitions.tables).items():
        edge = edges[0]
        raise ConfigurationError(
            f"{definitions.places.get(table, table)}, table {table}: {edge.operator} on the table {edge.table} of this pipeline. "
            f"Spark would start {table} beside {edge.table} instead of after it, and its rows would be an update late. "
            f"{ADVICE.get(edge.operator, ADVICE[''])}"
        )


def _checked_frame(frame: Any) -> Any:
    from pyspark.sql.connect.dataframe import DataFrame

    if not isinstance(frame, DataFrame):
        raise TypeError(f"its function returns {type(frame).__name__}, not a DataFrame")
    return frame


@contextlib.contextmanager
def _naming(root: Path, place: str, table: str) -> Iterator[None]:
    """Raise errors of this block with file, line and table; users' code and Spark's errors have many classes."""
    try:
        yield
    except Exception as error:
        raise _in_words(root, error, place, table) from error


def _in_words(root: Path, error: BaseException, place: str, table: str) -> Exception:
    """Return an error that names the file, the line and the table, without a traceback."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(root)]
    if frames:
        place = f"{Path(frames[-1].filename).relative_to(root)}:{frames[-1].lineno}"
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{Path(error.filename).relative_to(root)}:{error.lineno}"
    where = ", ".join(part for part in (place, f"table {table}" if table else "") if part)
    sentence = spark_sentence(error)
    kind = (
        ""
        if type(error).__module__.startswith("pyspark") or isinstance(error, OperationFailed)
        else f"{type(error).__name__}: "
    )
    return ConfigurationError(f"{where}: {kind}{sentence}" if where else f"{kind}{sentence}")


def _place(root: Path, location: Any) -> str:
    path = Path(location.filename)
    return f"{path.relative_to(root) if path.is_relative_to(root) else path}:{location.line_number}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Spark's lines about each file off the terminal; they are printed, not logged."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
