"""Documents of experiments without the figures that depend on the machine."""

from typing import Any

MACHINE_FIELDS = ("cpu_seconds", "load", "memory_mb")


def without_machine_fields(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without its cost and the machine's load; two runs of one seed agree in the rest."""
    return {name: value for name, value in document.items() if name not in MACHINE_FIELDS}
