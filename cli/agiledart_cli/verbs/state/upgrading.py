"""`agiledart submit --upgrade`: replace a running application by its next version, which continues with its state."""

import contextlib
from typing import Any

import msgspec

from agiledart_cli.output import print_message
from agiledart_cli.verbs.state.checkpoint_transfer import checkpoint_file, matched, print_matched
from agiledart_cli.verbs.state.upgrade_run import UpgradeTask
from agiledart_cli.verbs.state.upgrade_worker import carried_out
from agiledart_control.agent_place import mesh_agents
from agiledart_control.control_client import ControlClient
from agiledart_control.errors import CommandRefusedError, NoAgentError
from agiledart_control.polling import FINAL_STATES
from agiledart_dataflow.plan.delivery import Delivery
from agiledart_kernel.errors import ConfigurationError
from agiledart_node.wire.checkpoint_commands import Checkpoints, RemoveCheckpoint
from agiledart_node.wire.commands import Nodes, Status, Submit

TAKE_SECONDS = 120.0
"""Timeout of the commit of a checkpoint; the agent gives up earlier by itself."""

_HELD = "rows that wait to be merged"
"""Part of the refusal of a checkpoint whose waiting rows fit its own topology only."""


def task_of(
    client: ControlClient, name: str, command: Submit, drops: tuple[str, ...], identity: str
) -> UpgradeTask | None:
    """Return the upgrade of the running application, or of one whose upgrade was interrupted; None when neither is there."""
    try:
        status = client.ask(Status(name))
    except CommandRefusedError:
        return None
    if not Delivery.named(command.delivery).is_saved and status.get("delivery"):
        with contextlib.suppress(ValueError):
            command = msgspec.structs.replace(command, delivery=str(Delivery.named(status["delivery"])))
    task = UpgradeTask(name, status["version"], msgspec.msgpack.encode(command), drops, _places(client), identity)
    if status["state"] not in FINAL_STATES:
        return task
    retained = [row["name"] for row in client.ask(Checkpoints(""))["retained"]]
    return task if task.checkpoint in retained else None


def check(client: ControlClient, task: UpgradeTask, command: Submit, *, quiet: bool) -> None:
    """Compare the running application's newest checkpoint with the new version.

    Raises:
        ConfigurationError, CommandRefusedError: the state does not fit; the text says what helps, and that the application runs on.
    """
    runs_on = f"{task.name} v{task.version} runs on unchanged."
    try:
        client.ask(Checkpoints(task.name, take=True), timeout=TAKE_SECONDS)  # a young run has none yet
        with checkpoint_file(client, task.name) as path:
            match, about, _ = matched(path, task.name, command, task.drops)
    except ConfigurationError as error:
        text = str(error).replace("The checkpoint has", f"{task.name} has")
        if _HELD in text:
            text = (
                f"{text}\nWait until its sources are even (agiledart status {task.name}), or end it without those rows left over: "
                " agiledart submit --replace (it drains; windows close)."
            )
        raise ConfigurationError(f"{text}\n{runs_on}") from None
    except CommandRefusedError as error:
        raise CommandRefusedError(f"{str(error).rstrip('.')}. {runs_on}", error.exit_code) from None
    if not quiet:
        print_matched(match, about)


def upgraded(client: ControlClient, task: UpgradeTask) -> dict[str, Any]:
    """Carry out an upgrade and return the status of the new version. Raises as `carried_out`."""
    print_message(f"  {task.name} v{task.version}: a last checkpoint, then v{task.version + 1} continues from it")
    status = carried_out(task, lambda text: print_message(f"  {text}"))
    begin = task.checkpoint.rpartition("v")[0] + "v"
    with contextlib.suppress(CommandRefusedError, NoAgentError):  # this agent may be lost; another has carried it out
        for row in client.ask(Checkpoints(task.name))["retained"]:
            if row["name"].startswith(begin) and row["name"] != task.checkpoint:
                client.ask(RemoveCheckpoint(row["name"]))
    return status


def _places(client: ControlClient) -> tuple[str, ...]:
    """Return the agents that may carry out an upgrade: the asked one, then others that take its place when it is lost."""
    if client.place.socket is not None:
        others = [str(place) for place in mesh_agents()]
        others = others if str(client.place) in others else []  # else they are of another network
    else:
        others = [node["address"] for node in client.ask(Nodes())["nodes"] if node["answers"] and node["address"]]
    return tuple(dict.fromkeys((str(client.place), *others)))
