"""Submission of a topology: the builder in a user's file and its settings become the command that an agent takes."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from agiledart_control.agent_place import Notify
from agiledart_control.targets import load_target
from agiledart_dataflow.plan.delivery import DEFAULT, SAVING, Delivery
from agiledart_kernel.codec import encode
from agiledart_kernel.errors import ConfigurationError
from agiledart_node.records.application import SPECIFICATION_CODEC
from agiledart_node.wire.commands import RequestedParallelism, Submit

if TYPE_CHECKING:
    from agiledart_dataflow.graph.topology import Topology
    from agiledart_executor.user_code.user_builder import UserBuilder

SUBMIT_SECONDS = 1_900.0
"""Longest silence of the agent, which may wait for free capacity; the agent gives up earlier by itself."""


def make_submission(
    target: str,
    settings: Mapping[str, str],
    parallelism: Mapping[str, RequestedParallelism],
    *,
    name: str = "",
    executors: int = 0,
    dry_run: bool = False,
    paths: tuple[str, ...] = (),
    delivery: str = "",
    moves: str = "",
    placement: str = "",
    notify: Notify = lambda _: None,
) -> Submit:
    """Return the command that submits `FILE:NAME` with these settings; raises errors for the user.

    Args:
        delivery: delivery guarantee; empty for that of the topology.
        moves: whether its stages move to better nodes by themselves; empty: as the agents are set.
        placement: `STRATEGY[:OBJECTIVE]`; empty: that of the topology.
        notify: called with sentences on terms that the user may not have expected.

    The topology is built from the bundle as on the nodes, so that a fault appears here first.
    """
    from agiledart_dataflow.plan.stages import expand_parallelism
    from agiledart_executor.user_code.user_builder import build, build_bundle, encode_bundle, make_bundle
    from agiledart_executor.user_code.user_files import file_there, refuse_overwriting

    builder = load_target(target)
    here = build(builder, settings, Path.cwd())  # a traceback then shows the user's own file names
    if here.local_only:
        names = [name for step in here.local_only if (name := _parameter_of(builder, here, step))]
        passing = f"Pass files, for example {' '.join(f'--set {name}=csv:FILE' for name in names)}"
        if len(names) < len(here.local_only):
            passing = "Make them parameters and pass files, for example --set NAME=csv:FILE"
        raise ConfigurationError(
            f"{', '.join(here.local_only)} of {here.name} read or write objects of this process, which other nodes do"
            f" not have. {passing}, or use agiledart run."
        )
    _check_kinds(here)
    refuse_overwriting(here, file_there)
    bundle = make_bundle(builder, settings, application=name, paths=paths)
    topology = build_bundle(bundle)
    specification = topology.specification()
    chosen = expand_parallelism(specification, parallelism)
    promise = delivery or topology.delivery
    if delivery and delivery != topology.delivery and topology.delivery != DEFAULT:
        notify(f"--delivery {delivery} counts; the topology says {topology.delivery}.")
    if moves == "on" and not Delivery.named(promise).is_saved:
        notify(f"--moves on: it is not saved by epochs, so moves are advice only. To let it move: {SAVING}.")
    return Submit(
        name,
        encode(specification),
        encode_bundle(bundle),
        chosen,
        executors,
        dry_run,
        promise,
        moves=moves,
        placement=_checked_placement(placement or topology.placement),
    )


def _checked_placement(text: str) -> str:
    """Return `STRATEGY[:OBJECTIVE]`. Raises ConfigurationError: there is no such strategy here, or no such objective."""
    from agiledart_node.context.config import LIVE_OBJECTIVES
    from agiledart_placement.registry import parse_choice

    return parse_choice(text, LIVE_OBJECTIVES).text if text else ""


def _parameter_of(builder: "UserBuilder", topology: "Topology", step: str) -> str:
    """Return the builder's parameter whose default is the connector of a step; empty when there is none."""
    connector = next(known.connector for known in topology.steps if known.name == step)
    return next((name for name, parameter in builder.parameters.items() if parameter.default is connector), "")


def _check_kinds(topology: "Topology") -> None:
    """Raise `ConfigurationError` for a mistyped kind of source or sink, before an agent is asked."""
    from agiledart_connectors.plugins import SINK_GROUP, SOURCE_GROUP, likely_kind_error

    for step in topology.steps:
        if step.connector is not None:
            group = SINK_GROUP if step.source is None else SOURCE_GROUP
            if error := likely_kind_error(group, step.connector.kind):
                raise ConfigurationError(f"{step.name}: {error}")


def name_of(command: Submit) -> str:
    """Return the name under which an application runs."""
    return command.name or SPECIFICATION_CODEC.decode(command.specification).name
