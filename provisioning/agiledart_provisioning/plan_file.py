"""State files of `agiledart provision plan`, format `agiledart-provisioning/1`, and the answer to one."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

import msgspec

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.actions import Action
from agiledart_provisioning.provisioning_settings import ProvisioningSettings, settings_of
from agiledart_provisioning.registry import policy_named
from agiledart_provisioning.state import Host, MachineOffer, OperatorType, ProvisioningState
from agiledart_provisioning.upscaling import refuse_oversized
from agiledart_provisioning.utilities import cost, down_utility, host_utility, up_trigger

FORMAT = "agiledart-provisioning/1"
PLAN_FORMAT = "agiledart-provisioning-plan/1"

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Bytes of a state file that are read; a state of a thousand hosts has less than a tenth of it."""

MAX_INSTANCES = 10_000
"""Instances of one type on one host."""


class OfferEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`offer` of a file: the machine that a lease brings."""

    cpu: float
    memory: float
    cost: float


class TypeEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of `types` in a file; see `OperatorType`."""

    name: str
    cpu: float
    memory: float
    image_mb: float
    slo_ms: float
    duration_ms: float | None = None
    durations_ms: tuple[float, ...] = ()
    queue: float = 0.0
    scalings: int = 0


class HostEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of `hosts` in a file; see `Host`."""

    name: str
    cpu: float
    memory: float
    cost: float
    paid_until_s: float
    images: tuple[str, ...] = ()
    instances: dict[str, int] = {}


class PlanFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole state file."""

    format: str
    now_s: float
    btu_s: float
    types: tuple[TypeEntry, ...]
    hosts: tuple[HostEntry, ...]
    policy: str = "btu"
    seed: int = 1
    settings: dict[str, Any] = {}
    offer: OfferEntry | None = None
    violations: float = 0.0


def read_plan_file(text: bytes) -> PlanFile:
    """Return a checked state file.

    Raises:
        ConfigurationError: it is no JSON, has another format, or a value that cannot be; the message names the place.
    """
    if len(text) > MAX_FILE_BYTES:
        raise ConfigurationError(f"the file has {len(text):,} bytes; at most {MAX_FILE_BYTES:,} are read")
    try:
        file = msgspec.json.decode(text, type=PlanFile)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise ConfigurationError(validation_text(error)) from None
    if file.format != FORMAT:
        raise ConfigurationError(f"format: {file.format!r} is not {FORMAT!r}")
    _check(file)
    return file


def validation_text(error: msgspec.DecodeError) -> str:
    """Return the text for users of an error of the JSON decoder."""
    if isinstance(error, msgspec.ValidationError):
        return str(error).replace("Object", "the file", 1)
    return f"it is not JSON: {error}"


def state_of(file: PlanFile) -> ProvisioningState:
    """Return the state that a file describes. Without `offer`, a lease brings a machine like the largest host."""
    largest = max(file.hosts, key=lambda host: (host.cpu, host.memory))
    offer = file.offer or OfferEntry(largest.cpu, largest.memory, largest.cost)
    return ProvisioningState(
        file.now_s,
        file.btu_s,
        tuple(OperatorType(**msgspec.structs.asdict(entry)) for entry in file.types),
        tuple(
            Host(
                entry.name, entry.cpu, entry.memory, entry.cost, entry.paid_until_s, frozenset(entry.images),
                {name: number for name, number in entry.instances.items() if number},
            )
            for entry in file.hosts
        ),
        MachineOffer(offer.cpu, offer.memory, offer.cost),
        violations=file.violations,
    )  # fmt: skip


def plan(file: PlanFile) -> dict[str, Any]:
    """Return the answer to a file: cost and utilities of the given state, and the policy's actions in their order."""
    settings = settings_of(file.settings)
    state = state_of(file)
    for entry in state.types:
        refuse_oversized(entry, state.offer.cpu, state.offer.memory)
    actions = policy_named(file.policy, settings).decide(state, RandomStream(file.seed, "provision plan"))
    return {
        "format": PLAN_FORMAT,
        "cost": round(cost(state, settings), 6),
        "up_trigger": {entry.name: _trigger(entry, settings) for entry in state.types},
        "host_utility": {
            entry.name: {host.name: _rounded(host_utility(state, host, entry, settings)) for host in state.hosts}
            for entry in state.types
        },
        "down_utility": {entry.name: _rounded(down_utility(state, entry, settings)) for entry in state.types},
        "window_s": settings.window(state.btu_s),
        "actions": [_written(action) for action in actions],
    }


def _trigger(entry: OperatorType, settings: ProvisioningSettings) -> dict[str, Any]:
    trigger = up_trigger(entry, settings)
    return {
        "fires": trigger.fires,
        "prediction_ms": None if trigger.prediction_ms is None else round(trigger.prediction_ms, 6),
    }


def _rounded(utility: float) -> float:
    return float(f"{utility:.9g}")


def _written(action: Action) -> dict[str, str]:
    """Return the JSON form of an action."""
    form = {"do": action.kind.value}
    if action.type_name:
        form["type"] = action.type_name
    if action.source:
        form |= {"from": action.source, "to": action.host}
    else:
        form["host"] = action.host
    return form | {"why": action.why}


def _check(file: PlanFile) -> None:
    """Raise ConfigurationError for the first value of a file that cannot be."""
    _need(file.now_s, "now_s", 0.0)
    _need(file.btu_s, "btu_s", above=0.0)
    _need(file.violations, "violations", 0.0)
    settings_of(file.settings)
    check_types(file.types)
    if not file.hosts:
        raise ConfigurationError("hosts: the file has none")
    _check_unique([host.name for host in file.hosts], "hosts")
    if file.offer is not None:
        check_offer(file.offer)
    by_name = {entry.name: entry for entry in file.types}
    for host in file.hosts:
        _check_host(host, by_name)


def check_types(types: tuple[TypeEntry, ...]) -> None:
    """Raise ConfigurationError for the first value of the types that cannot be."""
    if not types:
        raise ConfigurationError("types: the file has none")
    _check_unique([entry.name for entry in types], "types")
    for entry in types:
        place = f"types.{entry.name}"
        for value, name in ((entry.cpu, "cpu"), (entry.memory, "memory"), (entry.slo_ms, "slo_ms")):
            _need(value, f"{place}.{name}", above=0.0)
        for value, name in ((entry.image_mb, "image_mb"), (entry.queue, "queue"), (entry.scalings, "scalings")):
            _need(value, f"{place}.{name}", 0.0)
        for duration in (entry.duration_ms, *entry.durations_ms):
            if duration is not None:
                _need(duration, f"{place}.durations_ms", 0.0)


def check_offer(offer: OfferEntry) -> None:
    """Raise ConfigurationError for the first value of an offer that cannot be."""
    _need(offer.cpu, "offer.cpu", above=0.0)
    _need(offer.memory, "offer.memory", above=0.0)
    _need(offer.cost, "offer.cost", 0.0)


def _check_host(host: HostEntry, types: Mapping[str, TypeEntry]) -> None:
    place = f"hosts.{host.name}"
    _need(host.cpu, f"{place}.cpu", above=0.0)
    _need(host.memory, f"{place}.memory", above=0.0)
    _need(host.cost, f"{place}.cost", 0.0)
    _need(host.paid_until_s, f"{place}.paid_until_s", 0.0)
    for name in (*host.images, *host.instances):
        if name not in types:
            raise ConfigurationError(f"{place}: there is no type {name!r}; the file has {', '.join(types)}")
    for name, number in host.instances.items():
        _need(number, f"{place}.instances.{name}", 0.0)
        if number > MAX_INSTANCES:
            raise ConfigurationError(f"{place}.instances.{name} = {number}: at most {MAX_INSTANCES:,} are possible")
    for need, capacity, unit in (
        (sum(types[name].cpu * number for name, number in host.instances.items()), host.cpu, "cpu"),
        (sum(types[name].memory * number for name, number in host.instances.items()), host.memory, "memory"),
    ):
        if need > capacity:
            raise ConfigurationError(f"{place}: its instances need {need:g} {unit}, it has {capacity:g}")


def _check_unique(names: list[str], place: str) -> None:
    for name in names:
        if not name:
            raise ConfigurationError(f"{place}: a name is empty")
        if names.count(name) > 1:
            raise ConfigurationError(f"{place}: {name!r} stands there twice")


def _need(value: float, place: str, least: float | None = None, *, above: float | None = None) -> None:
    if not isfinite(value) or (least is not None and value < least) or (above is not None and value <= above):
        bound = f"at least {least:g}" if least is not None else f"more than {above:g}"
        raise ConfigurationError(f"{place} = {value:g}: must be {bound}")


EXAMPLE: dict[str, Any] = {
    "format": FORMAT, "now_s": 3540, "btu_s": 3600, "policy": "btu", "seed": 1, "settings": {},
    "types": [
        {"name": "parse", "cpu": 660, "memory": 452, "image_mb": 89, "slo_ms": 1500, "duration_ms": 1700,
         "durations_ms": [1400, 1500, 1550, 1600, 1700], "queue": 60, "scalings": 3},
        {"name": "report", "cpu": 47, "memory": 452, "image_mb": 70, "slo_ms": 1300, "duration_ms": 1280,
         "durations_ms": [1290, 1310, 1270, 1300, 1280], "queue": 0, "scalings": 0},
    ],
    "hosts": [
        {"name": "h1", "cpu": 4096, "memory": 7168, "cost": 6, "paid_until_s": 3600, "images": ["parse"],
         "instances": {"parse": 2}},
        {"name": "h2", "cpu": 4096, "memory": 7168, "cost": 6, "paid_until_s": 5400, "images": ["parse", "report"],
         "instances": {"parse": 1, "report": 2}},
    ],
    "violations": 3,
}  # fmt: skip
"""File that `agiledart provision plan --example` writes."""
