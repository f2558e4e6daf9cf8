"""Kinds of sources, sinks and formats that other packages bring, by entry points; a broken one is reported and harms no other.

A source may also be a plain function: it takes the options as keyword arguments and returns an iterator of CSV lines.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import Any, Final

from agiledart_connectors.catalogue import SINKS, SOURCES
from agiledart_connectors.codecs.formats import CODEC_GROUP, FORMATS
from agiledart_connectors.files.line_reader import generated_reader
from agiledart_connectors.options import check_options
from agiledart_connectors.rejections import OPTIONS as REJECTED
from agiledart_connectors.rejections import RejectsRows, check_policy
from agiledart_connectors.sink_guarantees import OPTION
from agiledart_dataflow.plan.connector_kinds import (
    API_VERSION,
    ConnectorKind,
    Guarantee,
    HasApiVersion,
    HasDescription,
    HasGuarantee,
    HasOptions,
    OpensSource,
)
from agiledart_dataflow.plan.connectors import Connector, SinkWriter, SourceReader
from agiledart_kernel.errors import AgileDartError, ConfigurationError, OperationFailed
from agiledart_kernel.version import VERSION

SOURCE_GROUP: Final = "agiledart.sources"
SINK_GROUP: Final = "agiledart.sinks"

_BUILT_IN: Final = {SOURCE_GROUP: SOURCES, SINK_GROUP: SINKS}
_ROLES: Final = {SOURCE_GROUP: "source", SINK_GROUP: "sink", CODEC_GROUP: "format"}

GENERATED: Final = Guarantee("made again from the beginning", can_rewind=True, acknowledges="position")


@dataclass(frozen=True)
class Plugin:
    """Line of `agiledart plugins list`.

    Attributes:
        role: source, sink or format.
        origin, version: distribution that brings the kind; "agiledart" for built-in ones.
        extra: optional dependency to install, when it is missing.
        fault: why the kind cannot be used.
    """

    role: str
    name: str
    what: str
    origin: str
    version: str
    options: tuple[str, ...] = ()
    guarantee: Guarantee | None = None
    extra: str = ""
    fault: str = ""


def points(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name; of two with one name the first."""
    points_by_name: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        points_by_name.setdefault(point.name, point)
    return points_by_name


def is_extra_missing(kind: ConnectorKind) -> bool:
    """Return whether a dependency of this kind has to be installed first."""
    return bool(kind.needs) and find_spec(kind.needs) is None


def unknown_kind_error(group: str, name: str) -> ConfigurationError:
    """There is no such kind."""
    role, other = _ROLES[group], {SOURCE_GROUP: SINK_GROUP, SINK_GROUP: SOURCE_GROUP}[group]
    names = sorted({*_BUILT_IN[group], *points(group)})
    close = get_close_matches(name, names, 1)
    meant = f" Did you mean {close[0]}?" if close else ""
    alternative = f" ({name} is a {_ROLES[other]} only)" if name in _BUILT_IN[other] else ""
    return ConfigurationError(f"there is no {role} {name!r}{alternative}.{meant} There are {', '.join(names)}")


DATABASES: Final = frozenset(
    {"postgresql", "postgres", "mysql", "mariadb", "sqlite", "oracle", "mssql", "cockroachdb", "duckdb"}
)
"""Schemes of URLs of databases, which users write in place of `sql:`."""


def likely_kind_error(group: str, name: str) -> ConfigurationError | None:
    """Return an error for a kind that is probably a slip: unknown here, and like a known one or a database's URL; else None.

    Another unknown kind may be one of a package that only the nodes have.
    """
    if name in _BUILT_IN[group] or name in points(group):
        return None
    if name.partition("+")[0] in DATABASES:
        return ConfigurationError(
            f"there is no {_ROLES[group]} {name!r}: a database is written sql:NAME?table=…, where the credential NAME, a file of"
            " the node, holds its URL and password"
        )
    if name not in _BUILT_IN[SOURCE_GROUP] and name not in _BUILT_IN[SINK_GROUP]:
        names = {*_BUILT_IN[group], *points(group)}
        return unknown_kind_error(group, name) if get_close_matches(name, names, 1, 0.65) else None
    return unknown_kind_error(group, name)


def check_installed(kind: ConnectorKind, role: str) -> None:
    """Raise `ConfigurationError` when something has to be installed first."""
    if is_extra_missing(kind):
        raise ConfigurationError(f"there is no {role} {kind.name!r} here:  pip install 'agiledart[{kind.extra}]'")


def load_entry_point(point: EntryPoint, role: str) -> Any:
    """Return the object that an entry point names.

    Raises `OperationFailed`: it cannot be loaded, or is made for another version.
    """
    try:
        loaded = point.load()
        made = loaded() if isinstance(loaded, type) else loaded
        version = made.api_version if isinstance(made, HasApiVersion) else API_VERSION
    except (Exception, SystemExit) as error:  # noqa: BLE001  another package's code
        text = str(error) or type(error).__name__
        raise OperationFailed(f"the {role} {point.name} ({point.value}) cannot be loaded: {text}") from None
    if version != API_VERSION:
        raise OperationFailed(
            f"the {role} {point.name} ({point.value}) is made for version {version} of what plugins implement; this is"
            f" {API_VERSION}: install another version of {_distribution(point)[0]}"
        )
    return made


def source_guarantee(name: str) -> Guarantee | None:
    """Return the guarantee that a kind of source declares, built-in or of another package; None when there is no such kind."""
    kind = SOURCES.get(name)
    if kind is not None:
        return kind.guarantee
    point = points(SOURCE_GROUP).get(name)
    if point is None:
        return None
    made = load_entry_point(point, "source")
    return _declared_guarantee(made) if isinstance(made, OpensSource) else GENERATED


def sink_guarantee(name: str) -> Guarantee | None:
    """The same of a kind of sink."""
    kind = SINKS.get(name)
    if kind is not None:
        return kind.guarantee
    point = points(SINK_GROUP).get(name)
    return None if point is None else _declared_guarantee(load_entry_point(point, "sink"))


def open_plugin_source(connector: Connector, row_type: Any, pacing: tuple[str, ...]) -> SourceReader:
    """The reader of a source of another package."""
    point = points(SOURCE_GROUP).get(connector.kind)
    if point is None:
        raise unknown_kind_error(SOURCE_GROUP, connector.kind)
    made = load_entry_point(point, "source")
    if not isinstance(made, OpensSource):
        return _generated(connector, made, row_type, pacing)
    check_options(connector, (*_declared_options(made), *pacing))
    reader: SourceReader = _guarded(point, "source", lambda: made.open_source(connector, row_type))
    return reader


def open_plugin_sink(connector: Connector, row_type: Any, clock: Callable[[], int]) -> SinkWriter:
    """The writer of a sink of another package."""
    point = points(SINK_GROUP).get(connector.kind)
    if point is None:
        raise unknown_kind_error(SINK_GROUP, connector.kind)
    made = load_entry_point(point, "sink")
    guarantee = _declared_guarantee(made)
    delivers = guarantee is not None and guarantee.delivers
    known = (*_declared_options(made), *REJECTED)
    check_options(connector, (*known, OPTION) if delivers else known)
    check_policy(connector)
    writer: SinkWriter = _guarded(point, "sink", lambda: made.open_sink(connector, row_type, clock))
    if isinstance(writer, RejectsRows):
        writer.rejections.configure(connector)
    elif wrong := [name for name in REJECTED if connector.option(name)]:
        raise ConfigurationError(f"{connector.url()}: {connector.kind} rejects no rows, so it has no {wrong[0]}=")
    return writer


def _declared_guarantee(made: object) -> Guarantee | None:
    """Return the guarantee that a plugin declares; None where it declares none."""
    return made.guarantee if isinstance(made, HasGuarantee) else None


def _declared_options(made: object) -> tuple[str, ...]:
    """Return the names of the options that a plugin declares."""
    return tuple(made.options) if isinstance(made, HasOptions) else ()


def _guarded(point: EntryPoint, role: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except AgileDartError:
        raise
    except (Exception, SystemExit) as error:  # another package's code
        text = f"{type(error).__name__}: {error}"
        raise OperationFailed(f"the {role} {point.name} ({point.value}) failed: {text}") from error


def _generated(connector: Connector, make: Callable[..., Any], row_type: Any, pacing: tuple[str, ...]) -> SourceReader:
    """The lines of a function that an installed package provides."""
    parameters = inspect.signature(make).parameters
    check_options(connector, (*parameters, *pacing))
    if connector.path:
        raise ConfigurationError(f"{connector.url()}: the source {connector.kind} reads no path")
    given = {
        name: _value(connector, name, text, str(parameters[name].annotation))
        for name, text in connector.options
        if name not in pacing
    }
    return generated_reader(make(**given), connector.url(), row_type)


def _value(connector: Connector, name: str, text: str, annotation: str) -> Any:
    """An option's text as the generator's parameter wants it."""
    try:
        if "datetime" in annotation:
            return datetime.fromisoformat(text)
        if "int" in annotation:
            return int(text)
        if "float" in annotation:
            return float(text)
    except ValueError:
        raise ConfigurationError(f"{connector.url()}: {name}={text} is not what {name} takes ({annotation})") from None
    return text


def _distribution(point: EntryPoint) -> tuple[str, str]:
    return (point.dist.name, point.dist.version) if point.dist is not None else (point.module, "?")


def all_plugins() -> list[Plugin]:
    """Everything that can be named in a connector here, our own first; broken ones with what is wrong."""
    plugins = [
        Plugin(_ROLES[group], kind.name, kind.what, "agiledart", VERSION, kind.options, kind.guarantee,
               f"agiledart[{kind.extra}]" if is_extra_missing(kind) else "")
        for group, kinds in _BUILT_IN.items()
        for kind in kinds.values()
    ]  # fmt: skip
    plugins += [Plugin("format", name, description, "agiledart", VERSION) for name, description in FORMATS.items()]
    for group, role in _ROLES.items():
        known = {plugin.name for plugin in plugins if plugin.role == role}
        plugins += [_described(point, role, known) for point in points(group).values()]
    return plugins


def _described(point: EntryPoint, role: str, known: set[str]) -> Plugin:
    origin, version = _distribution(point)
    if point.name in known:
        return Plugin(role, point.name, "", origin, version, fault="not used: agiledart brings one of this name")
    try:
        made = load_entry_point(point, role)
        if role == "source" and not isinstance(made, OpensSource):
            options = tuple(inspect.signature(made).parameters)
            return Plugin(role, point.name, "lines that are made", origin, version, options, GENERATED)
        description = str(made.what) if isinstance(made, HasDescription) else ""
        options = _declared_options(made)
        return Plugin(role, point.name, description, origin, version, options, _declared_guarantee(made))
    except (AgileDartError, TypeError, ValueError) as error:
        return Plugin(role, point.name, "", origin, version, fault=str(error))
