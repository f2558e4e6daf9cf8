"""`agiledart schema`: the JSON Schema of applications in YAML, for editors."""

import click

from agiledart_cli.output import output_option, print_json


@click.command(short_help="Print the JSON Schema of applications in YAML.")
@output_option
def schema(output: str) -> None:
    """Print the JSON Schema of applications in YAML, so that an editor completes and checks them.

    \b
    Example:
      agiledart schema > agiledart.schema.json
      # first line of rooms.yaml:  # yaml-language-server: $schema=agiledart.schema.json
    """
    from agiledart_executor.query_files.yaml_schema import yaml_schema

    print_json(yaml_schema())
