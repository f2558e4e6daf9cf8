"""Forms and headers of webhooks: `body=`, `template=` and `header.NAME=`.

body=array                       the usual: a JSON array of rows
body=row                         each row is the body of a request of its own, a JSON object
template={"text": "{room}: {t}"} the same, with the text as the body. `{name}` stands for a field: its text as in JSON, without
                                 the quotes. `@FILE` reads the text from a file of the node
header.X-Api-Key=credential:NAME a further header; its value is a text, or that of a credential of the node
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from agiledart_connectors.codecs.rendering import json_of
from agiledart_connectors.credentials import secret
from agiledart_dataflow.data.schema import fields_of, is_dict
from agiledart_dataflow.plan.connectors import Connector
from agiledart_kernel.errors import ConfigurationError, OperationFailed, system_text

FORMS: Final = ("array", "row")
PREFIX: Final = "header."
MAX_TEMPLATE_BYTES: Final = 1 << 20

_CREDENTIAL: Final = "credential:"
_FIELD: Final = re.compile(r"\{(\w+)\}", re.ASCII)
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
"""Name of a header (RFC 9110, section 5.6.2)."""

_OWN: Final = ("content-length", "host", "transfer-encoding", "idempotency-key", "agiledart-row-ids")


def headers_of(connector: Connector) -> dict[str, str]:
    """Return the headers that a connector's options name. Raises `ConfigurationError`, and like `secret`."""
    headers: dict[str, str] = {}
    for option, value in connector.options:
        if not option.startswith(PREFIX):
            continue
        name = option.removeprefix(PREFIX)
        if not _NAME.fullmatch(name) or name.lower() in _OWN:
            raise ConfigurationError(f"{connector.kind}: {name!r} is no header that a sink may set")
        if value.startswith(_CREDENTIAL):
            value = secret(value.removeprefix(_CREDENTIAL), "the header's value")
        if not value.isascii() or not value.isprintable():
            raise ConfigurationError(f"{connector.kind}: the value of the header {name} is not printable ASCII")
        headers[name] = value
    return headers


def is_single(connector: Connector) -> bool:
    """Return whether each row is a request of its own. Raises `ConfigurationError`: there is no such body."""
    body = connector.option("body", FORMS[0])
    if body not in FORMS:
        raise ConfigurationError(f"{connector.url()}: body is one of {', '.join(FORMS)}, not {body!r}")
    has_template = bool(connector.option("template"))
    if has_template and connector.option("body") == "array":
        raise ConfigurationError(f"{connector.url()}: a template makes one body of each row: leave out body=array")
    single = has_template or body == "row"
    if single and connector.option("batch", "1") != "1":
        raise ConfigurationError(f"{connector.url()}: batch= is for body=array")
    return single


def row_renderer(connector: Connector, row_type: Any) -> tuple[Callable[[Any, int], bytes], str]:
    """Return (row, wall time) → its part of a body, and the type of the content.

    Raises:
        ConfigurationError: the template names a field that rows do not have.
        OperationFailed: its file cannot be read.
    """
    value_for, encode = json_of(row_type), msgspec.json.Encoder().encode
    template = _template(connector)
    if not template:
        return (lambda row, now: encode(value_for(row, now))), "application/json"
    known = [field.name for field in fields_of(row_type)]
    pieces = _FIELD.split(template)
    for name in pieces[1::2]:
        if name not in known and not is_dict(row_type):
            there_are = f"its fields are {', '.join(known)}" if known else "they have no fields"
            raise ConfigurationError(
                f"{connector.kind}: template= names {{{name}}}, and rows have no such field; {there_are}"
            )

    stripped = template.lstrip()
    is_json = stripped[:1] in ("{", "[") and _FIELD.match(stripped) is None
    text_of = _within_json if is_json else _as_text

    def render(row: Any, now: int) -> bytes:
        values = value_for(row, now)
        made = [text_of(encode(values[piece])) if place % 2 else piece.encode() for place, piece in enumerate(pieces)]
        return b"".join(made)

    return render, "application/json" if is_json else "text/plain; charset=utf-8"


def _template(connector: Connector) -> str:
    template = connector.option("template")
    if not template.startswith("@"):
        return template
    try:
        with Path(template[1:]).open("rb") as file:
            return file.read(MAX_TEMPLATE_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise OperationFailed(f"the template {template[1:]} cannot be read: {system_text(error)}") from None


def _within_json(value: bytes) -> bytes:
    """Return a JSON value as it stands within a text of JSON: a string without its quotes, all else as it is."""
    return value[1:-1] if value[:1] == b'"' else value


def _as_text(value: bytes) -> bytes:
    """Return a JSON value as plain text."""
    return msgspec.json.decode(value, type=str).encode() if value[:1] == b'"' else value
