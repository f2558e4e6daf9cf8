"""`agiledart provision`: which machines to lease and release, and what that would cost."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from agiledart_cli.output import count, output_option, print_json, print_message, print_table
from agiledart_cli.verbs.provisioning.gate_verbs import pause, release, resume, run
from agiledart_cli.verbs.provisioning.provision_status import status
from agiledart_kernel.errors import ConfigurationError, OperationFailed

T = TypeVar("T")

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@click.group(short_help="Lease machines for a mesh, and calculate what that costs.")
def provision() -> None:
    """Lease machines for the work that waits (`run`), see and stop that, and calculate what it would cost (`plan`, `replay`).

    \b
    Example:
      agiledart provision replay --example load.csv --types types.json
      agiledart provision replay load.csv --types types.json --btu 10m,1h
      agiledart provision run --example gate.toml
      agiledart provision run gate.toml
      agiledart provision status
    """


for _verb in (run, status, pause, resume, release):
    provision.add_command(_verb)


@provision.command(short_help="Show the utilities and actions for a state.")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--example", is_flag=True, help="Write an example to FILE, and end.")
@output_option
def plan(file: str, example: bool, output: str) -> int:
    """Read the state in FILE, and show its cost, the utilities of hosts and types, and the actions of a policy.

    The actions stand in the order in which they are possible. docs/how-to/provisioning.md explains the file.

    \b
    Example:
      agiledart provision plan --example state.json
      agiledart provision plan state.json
      agiledart provision plan state.json -o json
    """
    from agiledart_provisioning import plan_file

    if example:
        _write_new(Path(file), json.dumps(plan_file.EXAMPLE, indent=1) + "\n")
        return 0
    answer = _checked(file, lambda: plan_file.plan(plan_file.read_plan_file(_read(file))))
    if output == "json":
        print_json(answer)
        return 0
    print_table(
        ["TYPE", "SCALES UP", "PREDICTED", "SCALING DOWN", "HOSTS, BEST FIRST"],
        [
            [
                name,
                "yes" if trigger["fires"] else "no",
                "-" if trigger["prediction_ms"] is None else f"{trigger['prediction_ms']:g} ms",
                f"{answer['down_utility'][name]:.6g}",
                _hosts_text(answer["host_utility"][name]),
            ]
            for name, trigger in answer["up_trigger"].items()
        ],
    )
    print_message(
        f"cost {answer['cost']:.6f}; hosts are released in the last {answer['window_s']:g} s of their paid time"
    )
    for action in answer["actions"]:
        where = f"{action['from']} → {action['to']}" if "from" in action else action["host"]
        what = " ".join(part for part in (action["do"], action.get("type", "")) if part)
        click.echo(f" {what} on {where}: {action['why']}" if "type" in action else f" {what} {where}: {action['why']}")
    if not answer["actions"]:
        click.echo(" nothing to do")
    return 0


def _hosts_text(utilities: dict[str, float]) -> str:
    feasible = sorted((utility, name) for name, utility in utilities.items() if utility >= 0.0)
    return ", ".join(f"{name} {utility:.4g}" for utility, name in feasible) or "none has capacity"


@provision.command(short_help="Show what each policy would have cost on your load.")
@click.argument("load", metavar="LOAD.csv", type=click.Path(dir_okay=False))
@click.option("--types", "types_file", required=True, metavar="FILE", help="JSON file of the types and the offer.")
@click.option(
    "--policy", "policies", multiple=True, metavar="NAME", help="hosts, btu or threshold; repeatable. Default: all."
)
@click.option("--btu", "units", metavar="TIME,…", default="10m,30m,1h", show_default=True, help="Billing time units.")
@click.option(
    "--billing",
    metavar="hour|second:MIN",
    help="Instead of --btu: by the hour, or by the second with a minimum of MIN s.",
)
@click.option(
    "--price", type=click.FloatRange(min=0), help="Price of a machine for an hour, instead of that of the file."
)
@click.option(
    "--model", type=click.Choice(["fluid", "items"]), default="fluid", show_default=True, help="Model of queues."
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Seed of all random choices.")
@click.option("--timeline", metavar="FILE.csv", help="Also write machines and instances of each minute.")
@click.option("--example", is_flag=True, help="Write an example to both files, and end.")
@output_option
def replay(
    load: str, types_file: str, policies: tuple[str, ...], units: str, billing: str | None, price: float | None,
    model: str, seed: int, timeline: str | None, example: bool, output: str,
) -> int:  # fmt: skip
    """Show what each policy and billing time unit would have cost on your load, and how many items would have been on time.

    LOAD.csv has the columns second, type, rows_per_s: a rate holds until the next one of its type. The types file says what an
    instance of each type needs and how long it takes for an item.

    \b
    Example:
      agiledart provision replay --example load.csv --types types.json
      agiledart provision replay load.csv --types types.json
      agiledart provision replay load.csv --types types.json --policy btu --billing second:60 -o json
    """
    from agiledart_provisioning.registry import POLICIES
    from agiledart_provisioning.replay import load_file

    if example:
        _write_new(Path(load), load_file.example_load())
        _write_new(Path(types_file), json.dumps(load_file.EXAMPLE_TYPES, indent=1) + "\n")
        return 0
    types, offer = _checked(types_file, lambda: load_file.read_types_file(_read(types_file)))
    lines = _read(load).decode("utf-8", "replace").splitlines()
    workload = _checked(load, lambda: load_file.read_load(lines, types))
    hourly = offer.cost if price is None else price
    runs = []
    for btu_s, minimum_s in _billing(billing, units):
        for name in policies or POLICIES:
            print_message(f"{name}, unit of {btu_s:g} s, {workload.seconds / 3600:.1f} h of load")
            runs.append(_run(name, workload, offer, hourly * btu_s / 3600.0, btu_s, minimum_s, seed, model))
    if timeline:
        _write_timeline(timeline, runs)
    documents = [{key: value for key, value in run.items() if key != "minutes"} for run in runs]
    if output == "json":
        print_json({"format": "agiledart-provisioning-replay/1", "seed": seed, "model": model, "runs": documents})
        return 0
    print_table(
        ["POLICY", "UNIT", "COST", "LEASES", "PEAK", "ON TIME", "≤ 2×", "≤ 5×", "UP", "DOWN", "MOVED"],
        [
            [
                run["policy"], f"{run['btu_s']:g} s", f"{run['resource_cost']:.2f}", run["leases"], run["hosts_max"],
                f"{run['real_time']:.1%}", f"{run['near_real_time']:.1%}", f"{run['relaxed']:.1%}", count(run["upscalings"]),
                count(run["downscalings"]), count(run["migrations"]),
            ]
            for run in runs
        ],
        right=["COST", "LEASES", "PEAK", "ON TIME", "≤ 2×", "≤ 5×", "UP", "DOWN", "MOVED"],
    )  # fmt: skip
    return 0


def _run(
    name: str, workload: Any, offer: Any, price: float, btu_s: float, minimum_s: float, seed: int, model: str
) -> dict[str, Any]:
    """Return the figures of one replay, with its timeline."""
    from dataclasses import replace

    from agiledart_provisioning.provisioning_settings import ProvisioningSettings
    from agiledart_provisioning.registry import policy_named
    from agiledart_provisioning.replay.fluid_model import FluidModel
    from agiledart_provisioning.replay.item_model import ItemModel
    from agiledart_provisioning.replay.replay_run import ReplayRun

    policy = policy_named(name, ProvisioningSettings())
    chosen: Callable[..., Any] = ItemModel if model == "items" else FluidModel
    result = ReplayRun(workload, policy, replace(offer, cost=price), btu_s, seed, model=chosen).run()
    billed = (
        result.billed_afterwards(btu_s, price, minimum_s) if minimum_s or name == "threshold" else result.resource_cost
    )
    return {
        "policy": name, "btu_s": btu_s, "resource_cost": round(billed, 6), "leases": len(result.leases),
        "hosts_max": max(minute.hosts for minute in result.minutes), "items": round(result.levels.items),
        "real_time": round(result.levels.share("real_time"), 6),
        "near_real_time": round(result.levels.share("near_real_time"), 6),
        "relaxed": round(result.levels.share("relaxed"), 6), "upscalings": result.upscalings,
        "downscalings": result.downscalings, "migrations": result.migrations, "minutes": result.minutes,
    }  # fmt: skip


def _billing(billing: str | None, units: str) -> list[tuple[float, float]]:
    """Return (unit, minimum) in seconds. Raises ConfigurationError."""
    if billing is None:
        return [(_seconds(word), 0.0) for word in units.split(",")]
    if billing == "hour":
        return [(3600.0, 0.0)]
    kind, _, minimum = billing.partition(":")
    if kind != "second" or not minimum.isdigit():
        raise ConfigurationError(f"--billing {billing}: use hour, or second:60 for a minimum of 60 seconds")
    return [(1.0, float(minimum))]


def _seconds(word: str) -> float:
    number, unit = word.strip()[:-1], word.strip()[-1:]
    if unit not in UNITS_S or not number.isdigit() or not int(number):
        raise ConfigurationError(f"--btu {word}: use a time with its unit, as 10m, 1h or 90s")
    return float(int(number) * UNITS_S[unit])


def _write_timeline(file: str, runs: list[dict[str, Any]]) -> None:
    try:
        with Path(file).open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["policy", "btu_s", "minute", "hosts", "instances"])
            for run in runs:
                for minute in run["minutes"]:
                    writer.writerow([run["policy"], f"{run['btu_s']:g}", minute.minute, minute.hosts, minute.instances])
    except OSError as error:
        raise OperationFailed(f"--timeline {file} cannot be written: {error.strerror}") from None


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror}. --example writes one.") from None


def _checked(file: str, read: Callable[[], T]) -> T:
    """Return what `read` returns; a ConfigurationError gets the file's name in front."""
    try:
        return read()
    except ConfigurationError as error:
        raise ConfigurationError(f"{file}: {error}") from None


def _write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet."""
    try:
        with path.open("x") as stream:
            stream.write(text)
    except OSError as error:
        raise OperationFailed(f"{path} cannot be written: {error.strerror}") from None
    print_message(f"wrote {path}")
