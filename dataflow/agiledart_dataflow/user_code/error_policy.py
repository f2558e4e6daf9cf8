"""Error policy: how an application continues when a step's own code raises."""

from typing import Literal, get_args

from agiledart_dataflow.user_code.callsite import CallSite

ErrorPolicy = Literal["fail", "skip", "dead_letter"]
"""`fail`: the application fails (the default). `skip`: it continues without the row. `dead_letter`: it puts the row aside with
the error and continues."""


def policy_options(on_error: object, where: CallSite) -> tuple[tuple[str, str], ...]:
    """Return the options that state the policy in a step's specification. Raises `TopologyError` for an unknown policy."""
    if on_error not in get_args(ErrorPolicy):
        known = ", ".join(map(repr, get_args(ErrorPolicy)))
        raise where.error(f"on_error is one of {known}, not {on_error!r}")
    return () if on_error == "fail" else (("on_error", str(on_error)),)
