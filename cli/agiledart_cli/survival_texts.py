"""Texts of `agiledart submit` about a run that survives its nodes: its saved steps, the awaited nodes, and rows at risk."""

from collections.abc import Mapping
from typing import Any

from agiledart_cli.failure_costs import rewind_of_source
from agiledart_dataflow.plan.losses import WAIT
from agiledart_recovery.survival import Rewind

MAX_NAMES = 4
"""Names of steps or nodes that a line lists."""


def survival_text(facts: Mapping[str, Any]) -> str:
    """Return a sentence on what happens when a node of the application dies, from the facts of `explain recovery`."""
    steps = facts["steps"]
    with_state = _listed([step["name"] for step in steps if step["has_state"]])
    fixed = [step for step in steps if step["role"] in ("source", "sink") and step.get("if_lost", WAIT) == WAIT]
    awaited = list(dict.fromkeys(node for step in fixed for node in step["nodes"]))
    saved = f"with the state of {with_state}" if with_state else "and nothing but positions is saved"
    if awaited and all(node in awaited for step in steps for node in step["nodes"]):
        return f"If {_listed(awaited, 'or')} dies, it goes on when that node is back, {saved}."
    standbys = [step["name"] for step in steps if step.get("standby")]
    saved += f"; a standby holds {_listed(standbys)} ready" if standbys else ""
    waits = f" If {_listed(awaited, 'or')} dies, it waits for that node." if awaited else ""
    return f"If a node dies, another one takes over its steps, {saved}.{waits}"


def losses_of(facts: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each source whose rows in flight are lost with its node, with what keeps them."""
    lost = [
        step
        for step in facts["steps"]
        if step["role"] == "source" and rewind_of_source(step, merges=facts["merges"]) is Rewind.LOST
    ]
    return [
        f"Rows of {step['name']} that are in flight then are lost: {step['connector'] or step['kind']} cannot be read again."
        " The option overload=spool keeps them on its disk."
        for step in lost
    ]


def _listed(names: list[str], last: str = "and") -> str:
    """Return names as a text: at most `MAX_NAMES`, then how many more there are."""
    if len(names) > MAX_NAMES:
        return f"{', '.join(names[: MAX_NAMES - 1])} {last} {len(names) - MAX_NAMES + 1} more"
    return f" {last} ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
