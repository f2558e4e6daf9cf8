"""Row types that steps make: NamedTuples with the fields that expressions give, named after the step, the same on every node."""

import keyword
from collections.abc import Mapping
from typing import Any, NamedTuple

from agiledart_dataflow.user_code.callsite import CallSite


def made_row_type(step: str, fields: Mapping[str, Any], where: CallSite) -> Any:
    """A NamedTuple with these fields (name → type). Raises `TopologyError` for a name that a field cannot have."""
    for name in fields:
        if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
            raise where.error(f"{name!r} cannot name a field: letters, digits and '_', beginning with a letter")
    words = [word for word in "".join(c if c.isalnum() else " " for c in step).split() if word]
    title = "".join(word[:1].upper() + word[1:] for word in words)
    kind: Any = NamedTuple(title if title[:1].isalpha() else f"Row{title}", list(fields.items()))  # type: ignore[misc]
    kind.__doc__ = f"A row that leaves the step {step}."
    return kind
