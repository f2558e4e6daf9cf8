"""What becomes of an application when a step's own code raises."""

from typing import Literal, get_args

from agiledart_dataflow.user_code.callsite import CallSite

ErrorPolicy = Literal["fail", "skip", "dead_letter"]
"""The application fails (the default); goes on without the row; or goes on and puts the row aside with the error."""


def policy_options(on_error: object, where: CallSite) -> tuple[tuple[str, str], ...]:
    """What a step's specification says of its policy; raises `TopologyError` for one that there is not."""
    if on_error not in get_args(ErrorPolicy):
        known = ", ".join(map(repr, get_args(ErrorPolicy)))
        raise where.error(f"on_error is one of {known}, not {on_error!r}")
    return () if on_error == "fail" else (("on_error", str(on_error)),)
