"""Description of a kind of source or sink, known without opening one: its options, its guarantee, its extra packages.

Packages add kinds by entry points in the groups `agiledart.sources` and `agiledart.sinks`: each names a `SourcePlugin` or a
`SinkPlugin`, an object or class with these attributes; formats by `agiledart.codecs`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

from agiledart_dataflow.plan.connectors import Connector, SinkWriter, SourceReader

API_VERSION: Final = 1
"""Version of the plugin interface; a plugin made for another version is not used."""


@dataclass(frozen=True)
class Guarantee:
    """Guarantee of a connector for rows when a process ends midway.

    Attributes:
        duplicates: after a crash: which rows are lost, and which are read or written again.
        can_rewind: a source: rows that were read can be read again.
        acknowledges: a source: when it confirms to the rows' origin that they are safe.
        can_abort: a sink: it can withdraw rows written after the last committed epoch.
        delivers: a sink: it reports when rows have arrived (`when_delivered`), so an epoch can wait for that.
        idempotent_with: of such a sink: option with which a row written again changes nothing.
        confirms_with: of such a sink: option without which it does not report arrivals.
    """

    duplicates: str
    can_rewind: bool = False
    acknowledges: str = "never"
    can_abort: bool = False
    delivers: bool = False
    idempotent_with: str = ""
    confirms_with: str = ""


@dataclass(frozen=True)
class ConnectorKind:
    """One kind of source or sink.

    Attributes:
        name: the word before the colon of a connector's URL.
        what: description in a few words.
        guarantee: its guarantee for rows after a crash.
        options: names of its options; a source's `speed`, `malformed` and overload policy are not among them.
        extra: extra of this package that it needs, `mqtt` for `agiledart[mqtt]`.
        needs: a module that is missing without the extra.
        opens: `module:function` of `agiledart_connectors` that opens it.
        probes: `module:function` that tests whether it would open, without reading or writing; "": it is opened and closed again.
    """

    name: str
    what: str
    guarantee: Guarantee
    options: tuple[str, ...] = ()
    extra: str = ""
    needs: str = ""
    opens: str = ""
    probes: str = ""


@runtime_checkable
class OpensSource(Protocol):
    """Plugin that opens a source; a plain function that makes lines is the other kind of source."""

    def open_source(self, connector: Connector, row_type: Any) -> SourceReader:
        """Return a reader, as `SourcePlugin.open_source`."""
        ...


@runtime_checkable
class HasApiVersion(Protocol):
    """Plugin that says for which version of the interface it is made."""

    api_version: int


@runtime_checkable
class HasDescription(Protocol):
    """Plugin with a description in a few words."""

    what: str


@runtime_checkable
class HasOptions(Protocol):
    """Plugin that names its options."""

    options: tuple[str, ...]


@runtime_checkable
class HasGuarantee(Protocol):
    """Plugin that declares its guarantee for rows after a crash."""

    guarantee: Guarantee


class SourcePlugin(Protocol):
    """Source of another package."""

    api_version: int
    what: str
    options: tuple[str, ...]
    guarantee: Guarantee

    def open_source(self, connector: Connector, row_type: Any) -> SourceReader:
        """Return a reader. Raises `ConfigurationError` (an option is invalid) or `OperationFailed` (the input does not exist)."""
        ...


class SinkPlugin(Protocol):
    """Sink of another package."""

    api_version: int
    what: str
    options: tuple[str, ...]
    guarantee: Guarantee

    def open_sink(self, connector: Connector, row_type: Any, clock: Callable[[], int]) -> SinkWriter:
        """Return a writer; raises as `SourcePlugin.open_source`."""
        ...
