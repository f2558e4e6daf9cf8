"""`agiledart spark stop`: end the Spark that `--keep-spark` left running."""

import click

from agiledart_cli.output import output_option, plural, print_json, print_message


@click.group(short_help="Stop the Spark that --keep-spark left running.")
def spark() -> None:
    """Manage the Spark servers that --keep-spark leaves running. One that no command uses ends by itself after 30 minutes.

    \b
    Example:
      agiledart analytics run revenue --keep-spark
      agiledart spark stop
    """


@spark.command(short_help="Stop every Spark that stays.")
@output_option
def stop(output: str) -> int:
    """Stop every Spark server of this user that --keep-spark started.

    The first one takes a minute or two: Java stores Spark's classes in the cache folder, for faster starts.
    """
    from agiledart.spark import kept_folder
    from agiledart.spark_start import stop_servers

    stopped = stop_servers(kept_folder())
    if output == "json":
        print_json({"stopped": stopped})
        return 0
    print_message(f"stopped {plural(stopped, 'Spark server')}" if stopped else "No Spark server stays here.")
    return 0
