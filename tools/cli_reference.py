"""Writes docs/reference/cli.md from the commands themselves: `python -m tools.cli_reference`. A test compares."""

import sys
from importlib.metadata import version
from pathlib import Path

import click

from agiledart_cli.main import VERBS, cli

TARGET = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"

HEAD = """# Command line

Made from the commands by `python -m tools.cli_reference`; do not edit.

Data goes to stdout, talk to stderr. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no agent reachable, 130 interrupted,
143 terminated. `NO_COLOR` and pipes get plain text. What `list`, `status`, `nodes`, `route`, `submit`, `stop`, `logs` and
`token create` print with `-o json` are the bodies of the [control API](control-api.md); `logs -f` prints its lines one by one.

An agent is found in this order: `--agent`, the environment variable `AGILEDART_AGENT`, the usual state directory
(`$XDG_STATE_HOME/agiledart`, else `~/.local/state/agiledart`; a service has `/var/lib/agiledart`), the first agent of a
running `agiledart up`.
"""

TAIL = """
## The JSON object of `demo`

| Field | Meaning |
|---|---|
| `agents`, `executors`, `parallelism`, `input` | what was asked for |
| `records_in` | data lines of the input that `frequent-routes` read, well-formed or not |
| `malformed` | reason → lines that were no trip |
| `late` | trips before the newest seen |
| `outliers` | query → trips outside its grid |
| `results` | query → lines written |
| `latency_ms` | query → `p50`, `p95`, `p99` in milliseconds from reading a trip to writing the result that it caused |
| `paced` | true when the input was paced by event time; only then `latency_ms` is a latency, else it is a backlog |
| `placement` | `QUERY/STAGE` → list of nodes, one for each instance |
| `state`, `seconds_to_running` | query → how it ended, and how long from submission to running |
| `wall_seconds` | from the start of the command to the end of its last agent |
| `ring_seconds`, `flow_seconds` | of that: until the ring stood; while trips flowed |
| `rss_mb` | process (`a1`, `a1/executor-1`) → its peak resident memory, 10^6 bytes |
| `files` | query → file of results |
| `spark` | what Spark read from the log and computed (below); empty with `--no-spark` |

`spark` has `rows` read from the log, `rows_per_second` of the micro-batches, `batches` with rows, `job`,
`job_seconds`, its `columns` and `table`, Parquet `files`; or `skipped` or `error` with the reason.

## The JSON object of `top`

`agent`, `known` (nodes that it knows), `seconds` between the two looks, and three lists:

* `nodes`: `name`, `answers`, `instances`, `capacity`, `rtt_ms`, `busy` (cores), `applications`, `is_leaving`, `is_asked`.
* `applications`: `name`, `version`, `state`, `since_seconds`, `in_rate` and `out_rate` (rows a second of its sources and sinks),
  `records_in`, `results`, `late`, `malformed`, `p99_ms`, `reason`, `silent_nodes`.
* `steps`: `application`, `step`, `instances`, `nodes`, `in_rate`, `out_rate`, `dropped`, `blocked`, and, only at the first step of
  a stage, `busy` (share of a core of each instance) and `queue`.

What is not known is null.

## The JSON object of `doctor`

`checks` (objects of `name`, `level` — `ok`, `watch` or `bad` —, `text`, `suggestion`), and how many are `watch` and `bad`.

## The JSON object of `run`

The fields of a summary (`records_in`, `malformed`, `late`, `outliers`, `results` by sink, `latency_ms` by sink, `paced`,
`steps`) and `name`, `wall_seconds`, `interrupted`.
"""


def version_line() -> str:
    """Which click laid the page out."""
    major, minor = version("click").split(".")[:2]
    return f"<!-- laid out by click {major}.{minor} -->"


def reference() -> str:
    """The whole page."""
    parts = [HEAD, version_line() + "\n"]
    for verb in VERBS:
        parts.extend(_pages(verb, click.Context(cli, info_name="agiledart", help_option_names=["-h", "--help"])))
    return "\n".join(parts) + TAIL


def _pages(verb: str, parent: click.Context) -> list[str]:
    group = parent.command
    assert isinstance(group, click.Group)
    command = group.get_command(parent, verb)
    assert command is not None
    context = click.Context(command, info_name=verb, parent=parent, terminal_width=100, max_content_width=100)
    pages = [f"## {context.command_path}\n\n```text\n{command.get_help(context).rstrip()}\n```\n"]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            pages.extend(_pages(name, context))
    return pages


def main() -> int:
    """Write the page."""
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(reference())
    return 0


if __name__ == "__main__":
    sys.exit(main())
