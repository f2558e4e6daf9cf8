"""File of a gate, in TOML: limits, times, and the provider with its options. A wrong value is reported with its place."""

import re
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import SECOND
from agiledart_kernel.spans import parse_span
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.registry import POLICIES

BILLINGS = ("unit", "second")
"""A provider bills whole units, or seconds, of which `btu` is the least that it bills."""

MILLION = 1_000_000
_NAME = re.compile(r"[a-z0-9]{1,16}")
_TIMES = {
    "window": "window_ns",
    "round": "round_ns",
    "listing_delay": "listing_delay_ns",
    "orphan": "orphan_ns",
    "start_timeout": "start_ns",
    "silence": "gone_ns",
    "settle": "after_join_ns",
}
_KEYS = (
    *("name", "mode", "zone", "labels", "max_hosts", "max_spend", "policy", "high", "grace", "agent", "identity"),
    *_TIMES,
)

EXAMPLE = """\
# A gate: it leases machines for the mesh of the agent beside it.   agiledart provision run gate.toml
[gate]
mode = "advise"          # off, advise: say what it would do; act: do it
max_hosts = 2            # most machines at one time (needed for act)
max_spend = 1.00         # most that it books for one day, in the currency of the price (needed for act)

[provider]
kind = "local"           # agents as processes on this machine, for trying it; libcloud for real machines
price = 0.10             # of a billing time unit
btu = "2m"               # the billing time unit; real clouds: "1h"
capacity = 8             # instances that such a machine takes
"""


@dataclass(frozen=True, slots=True)
class GateFile:
    """Content of the file.

    Attributes:
        name: of the gate; part of the names of its machines.
        zone: only nodes of this zone count, and leased nodes belong to it; empty: all nodes.
        labels: of leased nodes, separated by commas.
        high: busy share of every node from which a machine is leased; 0: load is no demand.
        grace_ns: a leased node that was not renewed for a unit and this time ends itself.
        agent, identity: as `--agent` and `--identity`; the options win.
        settings: of the gate; its offer, price and unit come from the provider.
        provider: kind of provider; options: of the provider.
    """

    name: str
    zone: str
    labels: str
    policy: str
    high: float
    grace_ns: int
    agent: str
    identity: str
    settings: GateSettings
    provider: str
    options: dict[str, Any]


def read_gate_file(path: Path) -> GateFile:
    """Return the content of a file. Raises ConfigurationError: with the file, the key and what is allowed."""
    try:
        document = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}. --example writes one.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    try:
        return _checked(document)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None


def _checked(document: Mapping[str, Any]) -> GateFile:
    tables = {"gate": document.get("gate", {}), "provider": document.get("provider", {})}
    _check_keys("the file", document, ("gate", "provider"))
    for table, content in tables.items():
        if not isinstance(content, dict):
            raise ConfigurationError(f"[{table}] must be a table")
    gate, provider = tables["gate"], dict(tables["provider"])
    _check_keys("[gate]", gate, _KEYS)
    if "kind" not in provider:
        raise ConfigurationError('[provider] needs a kind, such as kind = "local"')
    kind = _text("provider", provider, "kind", "")
    del provider["kind"]
    billing = _text("provider", provider, "billing", BILLINGS[0])
    if billing not in BILLINGS:
        raise ConfigurationError(
            f"[provider] billing = {billing!r}: use {' or '.join(BILLINGS)}.{_meant(billing, BILLINGS)}"
        )
    provider.pop("billing", None)
    name = _text("gate", gate, "name", "") or _default_name()
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"[gate] name = {name!r}: use 1 to 16 small letters and digits")
    policy = _text("gate", gate, "policy", "hosts")
    if policy not in POLICIES:
        raise ConfigurationError(
            f"[gate] policy = {policy!r}: use one of {', '.join(POLICIES)}.{_meant(policy, POLICIES)}"
        )
    btu_ns = span_ns("provider", provider, "btu", 3_600 * SECOND)
    high = number("gate", gate, "high", 0.85, least=0.0)
    round_ns = span_ns("gate", gate, "round", min(60 * SECOND, btu_ns // 12))
    times: dict[str, Any] = {field: span_ns("gate", gate, key, 0) for key, field in _TIMES.items() if key in gate}
    if billing == BILLINGS[1]:
        times["by_second"] = True
    settings = GateSettings(
        _text("gate", gate, "mode", "advise"),
        whole("gate", gate, "max_hosts", 0),
        round(number("gate", gate, "max_spend", 0.0) * MILLION),
        "",
        1,
        btu_ns,
        whole("provider", provider, "capacity", 8),
        **{"round_ns": round_ns, "window_ns": max(btu_ns // 20, round_ns + 20 * SECOND), **times},
    )
    return GateFile(
        name,
        _text("gate", gate, "zone", ""),
        _text("gate", gate, "labels", ""),
        policy,
        high,
        span_ns("gate", gate, "grace", 900 * SECOND),
        _text("gate", gate, "agent", ""),
        _text("gate", gate, "identity", ""),
        settings,
        kind,
        provider,
    )


def _default_name() -> str:
    """Return the host's name as far as it can be a gate's."""
    return re.sub(r"[^a-z0-9]", "", socket.gethostname().lower())[:16] or "gate"


def _check_keys(place: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise ConfigurationError(f"{place} has no {key!r}; it has {', '.join(known)}.{_meant(key, known)}")


def _meant(word: str, known: tuple[str, ...]) -> str:
    close = get_close_matches(word, known, 1)
    return f" Did you mean {close[0]}?" if close else ""


def _text(place: str, table: Mapping[str, Any], key: str, default: str) -> str:
    value = table.get(key, default)
    if not isinstance(value, str):
        raise ConfigurationError(f"[{place}] {key} = {value!r}: it must be a text")
    return value


def whole(place: str, table: Mapping[str, Any], key: str, default: int) -> int:
    """Return a whole number above 0; `default` where the key is missing. Raises ConfigurationError."""
    value = table.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or (key in table and value <= 0):
        raise ConfigurationError(f"[{place}] {key} = {value!r}: it must be a whole number above 0")
    return value


def number(place: str, table: Mapping[str, Any], key: str, default: float, least: float | None = None) -> float:
    """Return a number above 0, or from `least`; `default` where the key is missing. Raises ConfigurationError."""
    value = table.get(key, default)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (key in table and not (value > 0 if least is None else value >= least)):
        bound = "above 0" if least is None else f"of at least {least:g}"
        raise ConfigurationError(f"[{place}] {key} = {value!r}: it must be a number {bound}")
    return float(value)


def span_ns(place: str, table: Mapping[str, Any], key: str, default: int) -> int:
    """Return a time span such as "90s" or "1h", in nanoseconds. Raises ConfigurationError."""
    if key not in table:
        return default
    value = table[key]
    try:
        span = int(parse_span(value).total_seconds() * SECOND) if isinstance(value, str) else 0
    except (ValueError, OverflowError):
        span = 0
    if span <= 0:
        raise ConfigurationError(f'[{place}] {key} = {value!r}: it must be a time with its unit, as "90s" or "1h"')
    return span
