"""Writes docs/reference/connectors.md from the catalogue of connectors: `python -m tools.connectors_reference`. A test compares."""

import sys
from collections.abc import Iterable
from pathlib import Path

from agiledart_connectors.catalogue import SINKS, SOURCES
from agiledart_connectors.codecs.formats import FORMATS
from agiledart_connectors.opening import PACING, sink_options
from agiledart_connectors.option_texts import option_text
from agiledart_dataflow.plan.connector_kinds import ConnectorKind

TARGET = Path(__file__).resolve().parent.parent / "docs" / "reference" / "connectors.md"

HEAD = """# Connectors

Made from the code's own table by `python -m tools.connectors_reference`; do not edit. `agiledart plugins list` shows the same, and
what other packages bring; `submit --dry-run` shows what those of an application guarantee. How to use them:
[the how-to](../how-to/connect-your-data.md).

A connector is written `KIND:PATH?OPTION=VALUE&…@NODE`.

"""

DUPLICATES = """With `duplicates=1` a sink that cannot withdraw rows may stand in an application with `delivery="exactly-once"`.
An epoch is committed when all rows before it have arrived, so none is lost; later rows may arrive again after a failure.
The option is not needed where a second arrival changes nothing: `sql:` with `key=`, `influx:` with `time=`. `mqtt:` needs
`qos=1` or 2. With `delivery="at-least-once"` every sink is accepted: it emits rows at once, and those of an uncommitted epoch
may arrive again.

"""


def _table(role: str, kinds: Iterable[ConnectorKind]) -> str:
    is_source = role == "Sources"
    heads = [
        "Kind",
        "What",
        "Options",
        "Extra",
        *(["Can go back", "Acknowledges"] if is_source else []),
        "After a crash",
    ]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for kind in kinds:
        guarantee = kind.guarantee
        cells = [
            f"`{kind.name}`",
            kind.what,
            ", ".join(f"`{option}`" for option in (kind.options if is_source else sink_options(kind))) or "–",
            f"`[{kind.extra}]`" if kind.extra else "–",
            *([("yes" if guarantee.can_rewind else "no"), guarantee.acknowledges] if is_source else []),
            guarantee.duplicates,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return f"## {role}\n\n" + "\n".join(lines) + "\n\n"


def _options(role: str, kinds: Iterable[ConnectorKind]) -> str:
    """The options of all kinds of a role, one a line; kinds for which it means the same stand together."""
    explained: dict[tuple[str, str], list[str]] = {}
    for kind in kinds:
        for option in kind.options if role == "source" else sink_options(kind):
            explained.setdefault((option, option_text(role, kind.name, option)), []).append(kind.name)
    rows = [
        f"| `{option}` | {', '.join(f'`{name}`' for name in names)} | {text} |"
        for (option, text), names in sorted(explained.items())
    ]
    if role == "source":
        rows += [f"| `{option}` | all | {option_text(role, '', option)} |" for option in PACING]
    return f"### Options of {role}s\n\n| Option | Of | Meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n\n"


def reference() -> str:
    """The whole page."""
    formats = "".join(f"* `{name}`: {what}\n" for name, what in FORMATS.items())
    return (
        HEAD
        + _table("Sources", SOURCES.values())
        + _options("source", SOURCES.values())
        + _table("Sinks", SINKS.values())
        + _options("sink", SINKS.values())
        + DUPLICATES
        + f"## Formats\n\nFor `?format=`, where a kind has it:\n\n{formats}"
    )


def main() -> None:
    """Write the page, or print it with `--print`."""
    if "--print" in sys.argv:
        sys.stdout.write(reference())
    else:
        TARGET.write_text(reference())


if __name__ == "__main__":
    main()
