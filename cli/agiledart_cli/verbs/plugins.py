"""`agiledart plugins`: which sources, sinks and formats there are here."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from agiledart_cli.output import BAD, WATCH, output_option, paint, print_json, print_table

if TYPE_CHECKING:
    from agiledart_connectors.plugins import Plugin


@click.group(short_help="Sources, sinks and formats that can be used here.")
def plugins() -> None:
    """Sources, sinks and formats that can be used here, with what other installed packages bring.

    \b
    Example:
      agiledart plugins list
    """


@plugins.command("list", short_help="What there is, from where, and what it guarantees.")
@output_option
def list_plugins(output: str) -> int:
    """What there is, from where, and what it guarantees.

    \b
    Example:
      agiledart plugins list
      agiledart plugins list -o json

    A package adds a source, sink or format by an entry point in the group agiledart.sources, agiledart.sinks or
    agiledart.codecs. One that is broken is shown with what is wrong. With -o json also the options of each.
    """
    from agiledart_connectors.plugins import all_plugins

    found = all_plugins()
    if output == "json":
        print_json({"plugins": [asdict(plugin) for plugin in found]})
        return 0
    for role in ("source", "sink", "format"):
        heads = [role, "from", "version", "after a crash" if role != "format" else "", "what"]
        print_table(heads, [_line(plugin) for plugin in found if plugin.role == role])
        click.echo()
    return 0


def _line(plugin: "Plugin") -> list[str]:
    what = plugin.what
    if plugin.fault:
        what = paint(plugin.fault, BAD)
    elif plugin.extra:
        what += "   " + paint(f"not here:  pip install '{plugin.extra}'", WATCH)
    duplicates = plugin.guarantee.duplicates if plugin.guarantee is not None else ""
    return [plugin.name, plugin.origin, plugin.version, duplicates, what]
