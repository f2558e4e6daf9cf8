"""`agiledart explain plan`: stages of a topology, how rows are spread among them, state, guarantee and estimated cost."""

from pathlib import Path
from typing import Any, Final

import click

from agiledart_cli.builder_names import BUILDER
from agiledart_cli.failure_costs import PROMISES, with_costs
from agiledart_cli.options import parallelism_by_step, parallelism_option, parse_parallelism, set_option
from agiledart_cli.output import output_option, print_json, print_table
from agiledart_control.targets import load_target
from agiledart_dataflow.plan.delivery import Delivery

SOURCE_US: Final = {"rows": 0.106, "times": 0.072, "positions": 0.131}
STAGE_US: Final = {"rows": 0.067, "times": 0.068, "positions": 0.128}
STATE_US: Final = {"rows": 0.643, "times": 0.643, "positions": 0.836}
WIRE_US: Final = {"rows": 0.210, "times": 0.210, "positions": 0.318}
FURTHER_STEP_US: Final = 0.025
SPREAD_US: Final = 0.129
"""Microseconds of CPU for each row, measured by `python -m benchmarks.path_costs` (docs/reference/data-path-costs.md)."""


@click.command("plan", short_help="Show stages, partitioning, state, guarantee and estimated cost.")
@click.argument("target", metavar="FILE[:NAME]", type=BUILDER)
@set_option
@parallelism_option
@click.option("--code", is_flag=True, help="Show the Python code that a file of SQL or YAML becomes.")
@output_option
def explain_plan(target: str, settings: tuple[str, ...], parallelism: tuple[str, ...], code: bool, output: str) -> None:
    """Show the plan of a topology: its stages, how rows are spread among their instances, state, and what a failure costs.

    FILE is a topology in SQL or YAML, or FILE:NAME one in Python; this command only builds it here and asks no agent.

    COST is an estimate: microseconds of CPU of the engine's own work for each row that enters the stage, without the work of
    your functions and of reading the input. WIRE is what a row costs more when the next stage runs on another node.

    \b
    Example:
      agiledart explain plan rooms.sql
      agiledart explain plan rooms.yaml --code
      agiledart explain plan taxi.py:frequent_routes --set trips=csv:trips.csv.gz --parallelism 2
    """
    from agiledart_executor.user_code.parameter import parse_settings
    from agiledart_executor.user_code.user_builder import build

    builder = load_target(target)
    topology = build(builder, parse_settings(settings), Path.cwd())
    document = plan_document(topology, parse_parallelism(parallelism))
    if output == "json":
        print_json(document)
        return
    print_plan_of_stages(document)
    if code:
        entry = builder.entry.partition(":")[0]
        source = builder.modules.files.get(f"{entry.replace('.', '/')}.py", b"").decode()
        click.echo(f"\n{source.rstrip()}")


def plan_document(topology: Any, parallelism: Any) -> dict[str, Any]:
    """Return the plan of a topology as plain data."""
    import msgspec

    from agiledart_dataflow.plan.stages import plan_stages
    from agiledart_node.user_commands.recovery_facts import recovery_facts

    specification = topology.specification()
    plan = plan_stages(specification, parallelism_by_step(specification, parallelism) or 1)
    facts: Any = msgspec.to_builtins(recovery_facts(specification, plan, topology.delivery, {}))
    after = {
        step["name"]: step["after_a_failure"]
        for step in with_costs(facts)["steps"]
        if step["role"] != "step" or step["has_state"]
    }
    stages = []
    for stage in plan.stages:
        steps = [specification.steps[index] for index in stage.steps]
        incoming, leaving = plan.incoming(stage.index), plan.outgoing(stage.index)
        carries = (incoming or leaving)[0].carries if incoming or leaving else "rows"
        table = SOURCE_US if stage.kind == "source" else STATE_US if stage.has_state else STAGE_US
        cost = table[carries] + FURTHER_STEP_US * (len(steps) - 1)
        cost += SPREAD_US * sum(edge.partitioning in ("key", "round_robin") for edge in leaving)
        stages.append(
            {
                "stage": stage.name,
                "kind": stage.kind,
                "steps": [
                    {"name": step.name, "kind": step.kind, "after_a_failure": after.get(step.name, "")}
                    for step in steps
                ],
                "parallelism": stage.parallelism,
                "inputs": [
                    {"from": plan.stages[edge.source].name, "partitioning": edge.partitioning, "carries": edge.carries}
                    for edge in incoming
                ],
                "has_state": stage.has_state,
                "keyed": stage.keyed,
                "cost_us": round(cost, 3),
                "wire_us": round(sum(WIRE_US[edge.carries] for edge in leaving), 3),
            }
        )
    return {"name": topology.name, "delivery": str(topology.delivery), "stages": stages}


def print_plan_of_stages(document: dict[str, Any]) -> None:
    """Print a line for each stage, and what a failure costs each step with a state or an outside."""
    delivery = Delivery(document["delivery"])
    click.echo(f"{document['name']}: {PROMISES[delivery]} (delivery={document['delivery']!r})")
    rows = []
    for stage in document["stages"]:
        inputs = [f"{edge['partitioning']} {edge['from']} ({edge['carries']})" for edge in stage["inputs"]]
        state = "by key" if stage["keyed"] and stage["has_state"] else "yes" if stage["has_state"] else "no"
        count = str(stage["parallelism"])
        rows.append(
            [stage["stage"], count, "; ".join(inputs), state, f"{stage['cost_us']:.2f}", f"{stage['wire_us']:.2f}"]
        )
    print_table(["stage", "×", "rows come by", "state", "cost µs", "wire µs"], rows, ["×", "cost µs", "wire µs"])
    for stage in document["stages"]:
        for step in stage["steps"]:
            if step["after_a_failure"]:
                click.echo(f" {step['name']}: {step['after_a_failure']}")
