"""Text from elsewhere as it may go to a terminal, a log or a label."""

from typing import Any, Final

_KEPT: Final = frozenset("\n\t")


def harmless(text: str) -> str:
    """`text` with every character spelt out that could move a cursor, end a line, turn writing around, or worse."""
    return text if text.isprintable() else "".join(c if c.isprintable() else spelt_out(c) for c in text)


def harmless_lines(text: str) -> str:
    """As `harmless`, with the line ends and tabs of a longer text."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in _KEPT else spelt_out(c) for c in text)


def harmless_document(value: Any) -> Any:  # a JSON document is any value
    """A JSON document whose texts, keys too, are all `harmless_lines`."""
    if isinstance(value, str):
        return harmless_lines(value)
    if isinstance(value, dict):
        return {harmless_document(key): harmless_document(one) for key, one in value.items()}
    if isinstance(value, list):
        return [harmless_document(one) for one in value]
    return value


def spelt_out(character: str) -> str:
    r"""A character as Python would write it in a string: `\x1b`, `\u202e`."""
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
