"""What becomes of an application when a step's own code raises."""

from typing import Any, Literal, get_args

from agiledart_dataflow.user_code.callsite import CallSite

ErrorPolicy = Literal["fail", "skip", "dead_letter"]
"""The application fails (the default); goes on without the row; or goes on and puts the row aside with the error."""


def error_policy(on_error: object, where: CallSite) -> dict[str, Any]:
    """What `Topology.add` needs of a step with this policy; raises `TopologyError` for one that there is not."""
    if on_error not in get_args(ErrorPolicy):
        known = ", ".join(map(repr, get_args(ErrorPolicy)))
        raise where.error(f"on_error is one of {known}, not {on_error!r}")
    if on_error == "fail":
        return {"options": (), "make": {}}
    return {"options": (("on_error", str(on_error)),), "make": {"on_error": on_error}}
