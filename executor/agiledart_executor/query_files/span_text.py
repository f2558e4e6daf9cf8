"""Lengths of time as texts with units, `5s` or `1m30s`, refused at their place."""

from datetime import timedelta

from agiledart_executor.query_files.text_place import TextPlace
from agiledart_kernel.spans import parse_span


def span_of(text: str, place: TextPlace) -> timedelta:
    """Return the length of time that a text names."""
    try:
        return parse_span(text)
    except ValueError:
        place.refuse(f"{text!r} is no length of time: write 5s, 10m or 1h30m")
