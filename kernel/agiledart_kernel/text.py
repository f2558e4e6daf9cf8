"""Text from other nodes or users, made safe for a terminal, a log or a label."""

from typing import Any, Final

_KEPT: Final = frozenset("\n\t")


def harmless(text: str) -> str:
    """Return `text` with escapes for every character that could move a cursor, end a line, reverse text, or do worse."""
    return text if text.isprintable() else "".join(c if c.isprintable() else spelt_out(c) for c in text)


def harmless_lines(text: str) -> str:
    """Return `text` as `harmless` does, but keep the line ends and tabs of a longer text."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in _KEPT else spelt_out(c) for c in text)


def harmless_document(value: Any) -> Any:  # a JSON document is any value
    """Return a JSON document whose texts, keys too, are all `harmless_lines`."""
    if isinstance(value, str):
        return harmless_lines(value)
    if isinstance(value, dict):
        return {harmless_document(key): harmless_document(item) for key, item in value.items()}
    if isinstance(value, list):
        return [harmless_document(item) for item in value]
    return value


def spelt_out(character: str) -> str:
    r"""Return a character as Python would write it in a string: `\x1b`, `\u202e`."""
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
