"""Options of sources in SQL and YAML, checked at their place."""

import ast
from typing import Final

from agiledart_dataflow.plan.connectors import MALFORMED_POLICIES
from agiledart_executor.query_files import python_code as py
from agiledart_executor.query_files.span_text import span_of
from agiledart_executor.query_files.text_place import TextPlace

SPANS: Final = ("max_out_of_order", "idle_timeout", "max_ahead")
CHOICES: Final = {
    "clock": ("events", "wall"),
    "overload": ("block", "spool", "shed_oldest", "shed_sample"),
    "malformed": MALFORMED_POLICIES,
}
SOURCE_OPTIONS: Final = ("event_time", *SPANS, *CHOICES)


def option_code(name: str, text: str, place: TextPlace) -> ast.expr:
    """Return the value of an option as code; refuse a wrong one."""
    if name not in SPANS:
        if text not in CHOICES[name]:
            place.refuse(f"{name} is one of {', '.join(CHOICES[name])}, not {text!r}")
        return py.value(text)
    return py.value(span_of(text, place))
