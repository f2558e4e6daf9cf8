"""Values of a result as JSON and tables show them."""

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any


def printable(value: Any) -> Any:
    """Return a value of a result that JSON has, too: times and dates as text, spans as seconds, decimals as text."""
    match value:
        case datetime():
            return value.isoformat(" ")
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return str(value)
        case bytes():
            return value.hex()
        case list() | tuple():
            return [printable(part) for part in value]
        case dict():
            return {str(name): printable(part) for name, part in value.items()}
        case _:
            return value
