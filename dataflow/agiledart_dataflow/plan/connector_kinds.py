"""What is known of a kind of source or sink without opening one: its options, what it guarantees, what has to be installed for it.

Packages add kinds by entry points in the groups `agiledart.sources` and `agiledart.sinks`: each names a `SourcePlugin` or a
`SinkPlugin`, an object or class with these attributes; formats by `agiledart.codecs`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from agiledart_dataflow.plan.connectors import Connector, SinkWriter, SourceReader

API_VERSION: Final = 1
"""Of what plugins implement; one made for another version is not used."""


@dataclass(frozen=True)
class Guarantee:
    """What becomes of rows when something ends in the middle.

    Attributes:
        goes_back: a source: what was read can be read again.
        takes_back: a sink: what was written behind the last committed epoch can be taken back.
        acknowledges: a source: when it tells where rows come from that they are safe.
        repeats: after a crash: which rows are lost, which come or are written again.
        delivers: a sink: it says when rows have arrived (`when_delivered`), so an epoch can wait for that.
        same_with: then: an option with which a row that is written again changes nothing.
        loses_without: then: an option without which it does not say so.
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
        what: in a few words.
        options: that it knows; a source's `speed`, `malformed` and overload policy are not among them.
        extra: of this package that it needs, `mqtt` for `agiledart[mqtt]`.
        needs: a module that is missing without the extra.
        opens: `module:function` of `agiledart_connectors` that opens it.
        probes: the same for one that says whether it would open, without reading or writing; "": it is opened and closed again.
    """

    name: str
    what: str
    guarantee: Guarantee
    options: tuple[str, ...] = ()
    extra: str = ""
    needs: str = ""
    opens: str = ""
    probes: str = ""


class SourcePlugin(Protocol):
    """A source of another package."""

    api_version: int
    what: str
    options: tuple[str, ...]
    guarantee: Guarantee

    def open_source(self, connector: Connector, row_type: Any) -> SourceReader:
        """The reader. Raises `ConfigurationError` (an option makes no sense) or `OperationFailed` (it is not there)."""
        ...


class SinkPlugin(Protocol):
    """A sink of another package."""

    api_version: int
    what: str
    options: tuple[str, ...]
    guarantee: Guarantee

    def open_sink(self, connector: Connector, row_type: Any, clock: Callable[[], int]) -> SinkWriter:
        """The writer; raises as `SourcePlugin.open_source`."""
        ...
