"""Sources that are silent while rows of others wait for them: in the figures of an application, and in its specification."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from agiledart_cli.output import duration

if TYPE_CHECKING:
    from agiledart_dataflow.plan.specification import Specification

SILENT_MS: Final = 5_000
"""From so many milliseconds on a silent source is shown: rows of one source always wait for a moment for those of another."""


def silent_input_texts(response: Mapping[str, Any]) -> list[str]:
    """Return a text for each silent source for which rows wait, from a response to `Status`."""
    saved = "saved meanwhile; " if response.get("epoch") else ""
    texts: dict[str, None] = {}
    for stage in response.get("stages") or ():
        for instance in stage["instances"]:
            awaited = instance.get("awaited_input") or {}
            if awaited.get("silent_ms", 0) >= SILENT_MS:
                held = ", ".join(awaited["held"]) or stage["name"]
                silent = duration(awaited["silent_ms"] / 1_000)
                texts[
                    f"{held} waits for {', '.join(awaited['sources'])}, silent for {silent};"
                    f" {saved}`idle_timeout=` lets it go on"
                ] = None
    return list(texts)


def waiting_input_texts(specification: "Specification") -> list[str]:
    """Return a warning for each step at which live sources wait for each other, because one of them has no `idle_timeout=`."""
    from agiledart_dataflow.plan.waiting_inputs import inputs_that_may_wait  # plans; needed before a submission only

    return [
        f"{waiting.step} takes rows of {' and '.join(waiting.sources)} in order of time: while"
        f" {' or '.join(waiting.without_timeout)} is silent, the others wait. `idle_timeout=` lets them go on, and rows that"
        " come afterwards may be late."
        for waiting in inputs_that_may_wait(specification)
    ]
