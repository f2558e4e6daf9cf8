"""Formats by name → decoders. Packages add theirs by an entry point in the group `agiledart.codecs`."""

from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

from agiledart_connectors.codecs.decoder import Decoder
from agiledart_connectors.codecs.decoder_options import PLAIN_OPTIONS, DecoderOptions
from agiledart_kernel.errors import AgileDartError, ConfigurationError, OperationFailed

FORMATS: Final = {
    "csv": "columns in the order of the fields",
    "json": "objects, whose members fill the fields of these names; an array of them is several rows",
    "msgpack": "MessagePack, under the rules of json; not in lines",
    "raw": "bytes as they come, for a row of one bytes field",
    "senml": "measurements of RFC 8428: packs with base values, resolved",
    "text": "a text as it comes, for a row of one str field",
}
"""Format → what it is."""

CODEC_GROUP: Final = "agiledart.codecs"

UNLINED: Final = frozenset({"msgpack"})
"""Formats whose payloads may hold line feeds as data."""


class DecoderFactory(Protocol):
    """Object that an entry point of the group `agiledart.codecs` names."""

    def __call__(self, row_type: Any) -> Decoder:
        """The decoder for rows of a type; raises `ConfigurationError` where there is none."""
        ...


def open_decoder(name: str, row_type: Any, options: DecoderOptions = PLAIN_OPTIONS) -> Decoder:
    """The decoder of a format. Raises `ConfigurationError`: there is none of this name, or not for such rows."""
    if name in ("json", "msgpack"):
        from agiledart_connectors.codecs.json_decoder import JsonDecoder, MsgpackDecoder

        return JsonDecoder(row_type, options) if name == "json" else MsgpackDecoder(row_type, options)
    if name == "senml":
        from agiledart_connectors.codecs.senml_decoder import SenmlDecoder

        return SenmlDecoder(row_type, options=options)
    if name == "csv":
        from agiledart_connectors.codecs.plain_decoder import CsvDecoder

        return CsvDecoder(row_type, options)
    if name in ("text", "raw"):
        from agiledart_connectors.codecs.plain_decoder import PlainDecoder

        return PlainDecoder(row_type, str if name == "text" else bytes, options)
    return _of_a_package(name, row_type)


def _of_a_package(name: str, row_type: Any) -> Decoder:
    points = {point.name: point for point in entry_points(group=CODEC_GROUP)}
    if name not in points:
        names = sorted({*FORMATS, *points})
        close = get_close_matches(name, names, 1)
        meant = f" Did you mean {close[0]}?" if close else ""
        raise ConfigurationError(f"there is no format {name!r}.{meant} There are {', '.join(names)}")
    try:
        make: DecoderFactory = points[name].load()
        return make(row_type)
    except AgileDartError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  another package's code
        text = f"{type(error).__name__}: {error}"
        raise OperationFailed(f"the format {name} ({points[name].value}) cannot be used: {text}") from None
