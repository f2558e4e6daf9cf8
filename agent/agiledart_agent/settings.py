"""Settings of an agent: flags over environment over TOML file over default. This module alone reads the environment.

Environment variables are `AGILEDART_SECTION__KEY`, for example `AGILEDART_AGENT__ZONE=attic`; the TOML file has the
same sections and keys.
"""

import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from agiledart_agent.host.default_capacity import MOST
from agiledart_agent.identity.host_name import machine_name
from agiledart_agent.metrics.metrics_server import LOOPBACK_NAMES
from agiledart_agent.paper_preset import PRESETS, SETTINGS
from agiledart_dataflow.user_code.user_limits import MIN_MEMORY_MB
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.labels import MAX_LABEL, MAX_LABELS, is_label
from agiledart_kernel.limits import MAX_LATENCY_LOG_BYTES, MAX_LATENCY_LOG_DAYS, MIN_LATENCY_LOG_BYTES
from agiledart_kernel.randomness import RandomStream
from agiledart_kernel.reachability import MAX_FURTHER_ADDRESSES
from agiledart_node.context.config import LIVE_OBJECTIVES, MOVES
from agiledart_placement.registry import ALL_STRATEGIES, STRATEGIES, package_strategies
from agiledart_scaling.registry import POLICIES, policy_named
from agiledart_shuffle.link_indices import KL_EXPLORATION, LINK_INDICES, index_named

SECTIONS = ("executors", "paths", "placement", "quota", "scaling")
"""Tables of a file beside `[agent]`; `key` in `[table]` is the setting `table_key`, and the variable `AGILEDART_TABLE__KEY`."""

SERVICE_STATE_DIR = Path("/var/lib/agiledart")
DEFAULT_LISTEN = "127.0.0.1:9464"
DEFAULT_METRICS = "127.0.0.1:9465"
MAX_CORES = 4096
SHARE_MODES = ("none", "owner")
"""Values of `[executors] share`."""
UPNP = "upnp"
"""Value of `advertise` that asks the router for a port."""
MAX_ENDED_DAYS = 30
"""Days after which an ended application is forgotten everywhere."""
MAX_DATA, MAX_PARITY = 16, 8


def default_state_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the default state directory: systemd's, the system's for root's service, else the user's."""
    if given := environment.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    if SERVICE_STATE_DIR.is_dir() and os.access(SERVICE_STATE_DIR, os.W_OK):
        return SERVICE_STATE_DIR
    base = environment.get("XDG_STATE_HOME") or os.path.join(environment.get("HOME", "/"), ".local", "state")
    return Path(base) / "agiledart"


def default_name() -> str:
    """Return the default name of a node: its machine's."""
    return socket.gethostname().split(".")[0]


@dataclass(frozen=True)
class AgentSettings:
    """Settings of an agent.

    Attributes:
        state_dir: key, grants, peer addresses, control socket; one agent at a time.
        preset: `paper`: the values of the paper of AgileDart, where no own setting says otherwise; empty: the defaults. In a
            file `name` in the table `[preset]`.
        name: for people; host name by default.
        listen: HOST:PORT of the TLS port; port 0 takes any free one. Loopback by default.
        advertise: HOST:PORT under which others reach this agent, when it is not `listen`; up to 4 with commas, the usual one
            first; `upnp`: ask the router for it.
        libp2p: `auto`: use py-libp2p where it is installed and the agent listens beyond loopback; `on`; `off`. It finds
            nodes of this network on the local network, and asks the router for a port with `advertise = "upnp"`.
        metrics: HOST:PORT of /metrics, /livez and /readyz; port 0 takes any free one, empty serves none.
        metrics_hosts: names, separated by commas, under which /metrics may be requested, beside addresses and
            `localhost`: a page in a user's browser may give this port any name of its own.
        web: whether a browser on this machine gets the page at `metrics`, which must then be a loopback address. The whole
            address, with its secret, stands in the file `web.address` of the state directory. Nothing is started before a
            visit.
        join: a join token, `@FILE` or `-`; empty: the stored network, else a new one.
        new_network: create a network although the state directory has remains of another, unknown one.
        leave_previous_network: leave a network of one node that never ran an application for the token's, without a
            question.
        zone: failure and latency zone.
        host: the machine, where agents fail together; detected unless given. Copies of one thing go to different
            machines.
        labels: names of abilities of this node, separated by commas, such as `gpu,camera`; `--label gpu` may be repeated.
        cores: processor cores that this node may count as its own; 0: all of the machine.
        capacity: operator instances of all applications that this node takes; 0: as memory and cores allow.
        executors: worker processes that an application may have on this node.
        fork_executors: fork executors from one process that has imported the engine: they start in milliseconds and
            share its memory. Off: each starts an interpreter of its own.
        executors_share: `owner`: small applications of one submitter share a process on this node; `none`: each has its own.
            In a file `share` in the table `[executors]`; the other three likewise.
        executors_share_most: applications in one shared process.
        executors_share_memory_mb: megabytes of memory that a shared process may take.
        executors_share_rows: rows a second that may pass the steps of all applications of a shared process.
        placement_strategy: strategy by which applications that this node deploys are mapped to nodes, unless `submit --placement`
            names another one (`agiledart_placement.registry`). In a file `strategy` in the table `[placement]`; the other two
            likewise.
        placement_objective: metric that moves of applications improve which this node coordinates, such as `response`.
        placement_moves: `advise`: `explain placement` names moves that would pay; `on`: they are carried out; `mopa`: the hosts of
            an application ask for them; `off`.
        latency_log_bytes: size of the log of latencies sampled at each sink, for `analytics run latency`; 0: none.
        latency_log_days: days for which these samples are kept.
        stuck_warning: seconds that one call of user code may take before the application's logs name it.
        stuck_limit: seconds after which the call's executor is stopped and the application fails; 0: never.
        executor_memory_mb: megabytes of memory that an executor may take; 0: half of this machine's.
        confine: keep users' code from this agent's keys, tokens and records, where the kernel can.
        allow_root: run users' code although this agent runs as root. Rules of the kernel bind root's files less than others'.
        checkpoint_interval: seconds from one epoch of an exactly-once application to the next, where this agent
            coordinates it.
        fragments: data and parity fragments of a state beyond 1 MiB, as `4+2`: any 4 of the 6 rebuild it. A smaller
            state is copied to one node more than there are parity fragments.
        path_timeout: seconds without any working path between two hosts of an application, after which it fails or
            recovers.
        paths_policy: rule for the cost of a link, by which relays of circuits are chosen (Algorithm 1):
            `agiledart_shuffle.registry`. In a file `policy` in the table `[paths]`; the other two likewise.
        paths_exploration: C of the policy `kl`: how much a link that was tried little is preferred.
        paths_memory: seconds in which half of the evidence about a link is forgotten.
        relay: whether this agent relays circuits for nodes that cannot reach each other directly.
        relay_bytes_per_second: bound of each circuit in each direction; 0: none.
        relays: names of the only agents that may relay for this one, separated by commas; empty: any.
        proxy: HOST:PORT of an HTTP proxy through which this agent and its executors dial nodes of other networks; empty: none.
        quota_applications: applications of one submitter that may run in the network, as this agent sees it; 0: any
            number. In a file `applications` in the table `[quota]`; the other three quotas likewise.
        quota_executors: worker processes of one submitter on this node; 0: any number.
        quota_memory_mb: megabytes that they may take together (each counts as `executor_memory_mb`); 0: any.
        quota_disk_mb: megabytes of files, spools, state and logs of one submitter on this node; 0: any.
        ended_days: days for which this node keeps the records of ended applications in which it took part on its disk, until
            `forget`; 0: they do not outlive a power cut of all nodes.
        scaling_policy: policy of stages with limits, in applications that this node coordinates. In a file `policy` in
            the table `[scaling]`; the other two likewise.
        scaling_interval: seconds from one decision to the next.
        scaling_max_instances: instances of one application for each node of the ring, beyond which the policy does not
            grow it; 0: any number.
        lease_file: JSON file with the terms of the lease of this machine, which a gate has written (`agiledart provision
            run`); empty: it is not leased.
        parent_fd: file descriptor whose closing ends the agent (-1: none).
        log_format: `console` or `json`.
        verbose: log every message.
    """

    state_dir: Path = Path()
    preset: str = ""
    name: str = ""
    listen: str = DEFAULT_LISTEN
    advertise: str = ""
    libp2p: str = "auto"
    metrics: str = DEFAULT_METRICS
    metrics_hosts: str = ""
    web: bool = False
    join: str = ""
    new_network: bool = False
    leave_previous_network: bool = False
    zone: str = ""
    host: str = ""
    labels: str = ""
    cores: int = 0
    capacity: int = 0
    executors: int = 1
    fork_executors: bool = True
    executors_share: str = SHARE_MODES[0]
    executors_share_most: int = 25
    executors_share_memory_mb: int = 200
    executors_share_rows: int = 5_000
    placement_strategy: str = STRATEGIES[0]
    placement_objective: str = LIVE_OBJECTIVES[0]
    placement_moves: str = "advise"
    latency_log_bytes: int = 16 << 20
    latency_log_days: int = 7
    stuck_warning: int = 5
    stuck_limit: int = 60
    executor_memory_mb: int = 0
    confine: bool = True
    allow_root: bool = False
    checkpoint_interval: int = 10
    fragments: str = "4+2"
    path_timeout: int = 60
    paths_policy: str = LINK_INDICES[0]
    paths_exploration: float = KL_EXPLORATION
    paths_memory: int = 8
    relay: bool = True
    relay_bytes_per_second: int = 0
    relays: str = ""
    proxy: str = ""
    quota_applications: int = 0
    quota_executors: int = 0
    quota_memory_mb: int = 0
    quota_disk_mb: int = 0
    ended_days: int = 30
    scaling_policy: str = POLICIES[0]
    scaling_interval: int = 5
    scaling_max_instances: int = 0
    lease_file: str = ""
    parent_fd: int = -1
    log_format: str = "console"
    verbose: bool = False

    @staticmethod
    def load(
        flags: Mapping[str, object], environment: Mapping[str, str], config_file: Path | None = None
    ) -> "AgentSettings":
        """Return the effective settings.

        Args:
            flags: from the command line; None means not given.
            config_file: TOML with a table `[agent]`.

        Raises:
            ConfigurationError: names the setting, its origin, its value and what is allowed.
        """
        return AgentSettings.explained(flags, environment, config_file)[0]

    @staticmethod
    def explained(
        flags: Mapping[str, object], environment: Mapping[str, str], config_file: Path | None = None
    ) -> tuple["AgentSettings", dict[str, str]]:
        """Return the settings as `load` does, and the origin of each: `default`, a variable's or a file's name, or a flag."""
        settings = AgentSettings(state_dir=default_state_dir(environment), name=default_name(), host=machine_name())
        known = {field.name: field for field in fields(AgentSettings)}
        origins = dict.fromkeys(known, "default")
        if environment.get("STATE_DIRECTORY"):
            origins["state_dir"] = "STATE_DIRECTORY"
        variables = _variables(environment)
        given: tuple[tuple[str, Mapping[str, Any]], ...] = (
            (str(config_file), _from_file(config_file)),
            ("the environment", {key: environment[name] for key, name in variables.items()}),
            ("the command line", {key: value for key, value in flags.items() if value is not None}),
        )
        preset = next((str(values["preset"]) for _, values in reversed(given) if "preset" in values), "")
        _check_preset(preset)
        of_preset = {name: entry.value for name, entry in SETTINGS.items()} if preset else {}
        # From the weakest origin to the strongest: each overrides the ones before it.
        for origin, values in ((f"preset {preset}", of_preset), *given):
            for key, value in values.items():
                if key not in known:
                    raise ConfigurationError(f"{origin}: there is no setting agent.{key}. Settings: {', '.join(known)}")
                typed: dict[str, Any] = {key: _typed(key, value, vars(settings)[key], origin)}
                settings = replace(settings, **typed)
                origins[key] = {
                    "the environment": variables.get(key, origin),
                    "the command line": f"--{key.replace('_', '-')}",
                }.get(origin, origin)
        settings.validate()
        return settings, origins

    @property
    def advertised_address(self) -> str:
        """Return the HOST:PORT that the user gave for others; empty: none, or the router is asked for it."""
        return "" if self.advertise == UPNP else self.advertise.partition(",")[0].strip()

    @property
    def further_addresses(self) -> tuple[str, ...]:
        """Return the HOST:PORT that the user gave for others beside the usual one."""
        return tuple(address.strip() for address in self.advertise.split(",")[1:])

    @property
    def relay_names(self) -> tuple[str, ...]:
        """Return the names of the only agents that may relay for this one; empty: any may."""
        return tuple(dict.fromkeys(name.strip() for name in self.relays.split(",") if name.strip()))

    @property
    def label_names(self) -> tuple[str, ...]:
        """Return the labels, each once, in their order."""
        return tuple(dict.fromkeys(name.strip() for name in self.labels.split(",") if name.strip()))

    def validate(self) -> None:
        """Check each value and how they go together."""
        split_address(self.listen, "agent.listen")
        self._validate_addresses()
        if self.latency_log_bytes and not MIN_LATENCY_LOG_BYTES <= self.latency_log_bytes <= MAX_LATENCY_LOG_BYTES:
            raise ConfigurationError(
                f"agent.latency_log_bytes is {self.latency_log_bytes}; allowed are 0 (keep none) and {MIN_LATENCY_LOG_BYTES} to "
                f"{MAX_LATENCY_LOG_BYTES}"
            )
        if not 1 <= self.latency_log_days <= MAX_LATENCY_LOG_DAYS:
            raise ConfigurationError(
                f"agent.latency_log_days is {self.latency_log_days}; allowed are 1 to {MAX_LATENCY_LOG_DAYS}"
            )
        if not 1 <= self.stuck_warning <= 86_400 or not 0 <= self.stuck_limit <= 86_400:
            raise ConfigurationError(
                f"agent.stuck_warning is {self.stuck_warning} and agent.stuck_limit {self.stuck_limit} (seconds);"
                " allowed are 1 to 86400 for the first and 0 (never) to 86400 for the second"
            )
        if self.executor_memory_mb and self.executor_memory_mb < MIN_MEMORY_MB:
            raise ConfigurationError(
                f"agent.executor_memory_mb is {self.executor_memory_mb}; allowed are 0 (half of the machine's memory) and"
                f" {MIN_MEMORY_MB} or more"
            )
        _check_seconds("checkpoint_interval", self.checkpoint_interval, 3_600)
        code_of(self.fragments)
        _check_seconds("path_timeout", self.path_timeout, 86_400)
        self._validate_paths()
        _check_seconds("scaling_interval", self.scaling_interval, 3_600)
        policy_named(self.scaling_policy)
        if self.scaling_max_instances < 0:
            raise ConfigurationError(
                f"scaling.max_instances is {self.scaling_max_instances}; allowed are 0 (any number) and more"
            )
        if self.relay_bytes_per_second < 0:
            raise ConfigurationError(
                f"agent.relay_bytes_per_second is {self.relay_bytes_per_second}; allowed are 0 (no bound) and more"
            )
        for setting, chosen, choices in (
            ("placement_strategy", self.placement_strategy, _strategies(self.placement_strategy)),
            ("placement_objective", self.placement_objective, LIVE_OBJECTIVES),
            ("placement_moves", self.placement_moves, MOVES),
            ("executors_share", self.executors_share, SHARE_MODES),
            ("log_format", self.log_format, ("console", "json")),
            ("libp2p", self.libp2p, ("auto", "on", "off")),
        ):
            if chosen not in choices:
                known = " and ".join(choices)
                raise ConfigurationError(
                    f"agent.{setting} is {chosen!r}; allowed are {known}.{_meant(chosen, choices)}"
                )
        _check_labels(self.labels, self.label_names)
        self._validate_size()
        if not self.name or len(self.name) > 64 or not self.name.isprintable() or any(c in self.name for c in " @:/,"):
            raise ConfigurationError(
                f"agent.name is {self.name!r}; allowed are 1 to 64 characters without space @ : / ,"
            )
        for setting, text in (("zone", self.zone), ("host", self.host)):
            if len(text) > 64 or not text.isprintable():
                raise ConfigurationError(f"agent.{setting} is {text!r}; allowed are up to 64 printable characters")

    def _validate_addresses(self) -> None:
        """Check the settings that are addresses, and names of hosts."""
        given = [self.advertised_address, *self.further_addresses]
        for setting, address in (
            *(("advertise", text) for text in given),
            ("metrics", self.metrics),
            ("proxy", self.proxy),
        ):
            if address:
                split_address(address, f"agent.{setting}")
        if len(given) > MAX_FURTHER_ADDRESSES + 1:
            raise ConfigurationError(
                f"agent.advertise has {len(given)} addresses; allowed are up to {MAX_FURTHER_ADDRESSES + 1}"
            )
        _check_host_names(self.metrics_hosts)
        metrics_host = split_address(self.metrics, "agent.metrics")[0] if self.metrics else ""
        if self.web and metrics_host not in LOOPBACK_NAMES:
            raise ConfigurationError(
                f"agent.web needs agent.metrics at a loopback address, such as {DEFAULT_METRICS}; it is {self.metrics!r}."
                " For a browser elsewhere run there:  agiledart web --agent HOST:PORT --identity @FILE"
            )

    def _validate_paths(self) -> None:
        """Check how the costs of links are learnt."""
        index_named(self.paths_policy, KL_EXPLORATION, RandomStream(0, "paths"))
        if not 0 <= self.paths_exploration <= 1:
            raise ConfigurationError(f"paths.exploration is {self.paths_exploration}; allowed are 0 to 1")
        _check_seconds("paths_memory", self.paths_memory, 3_600)

    def _validate_size(self) -> None:
        """Check the settings of size: quotas, executors, cores, capacity."""
        if not 0 <= self.ended_days <= MAX_ENDED_DAYS:
            raise ConfigurationError(f"agent.ended_days is {self.ended_days}; allowed are 0 (none) to {MAX_ENDED_DAYS}")
        for quota, most in (
            ("applications", self.quota_applications),
            ("executors", self.quota_executors),
            ("memory_mb", self.quota_memory_mb),
            ("disk_mb", self.quota_disk_mb),
        ):
            if most < 0:
                raise ConfigurationError(f"quota.{quota} is {most}; allowed are 0 (any) and more")
        for key, least, most in (("most", 2, 256), ("memory_mb", MIN_MEMORY_MB, 1 << 20), ("rows", 1, 10**9)):
            value = vars(self)[f"executors_share_{key}"]
            if not least <= value <= most:
                raise ConfigurationError(f"executors.share_{key} is {value}; allowed are {least} to {most}")
        if not 1 <= self.executors <= 64:
            raise ConfigurationError(f"agent.executors is {self.executors}; allowed are 1 to 64")
        for setting, value, zero, most in (
            ("cores", self.cores, "all of this machine", MAX_CORES),
            ("capacity", self.capacity, "as memory and cores allow", MOST),
        ):
            if not 0 <= value <= most:
                raise ConfigurationError(f"agent.{setting} is {value}; allowed are 0 ({zero}) to {most}")


def _check_labels(text: str, names: tuple[str, ...]) -> None:
    if len(names) > MAX_LABELS or not all(map(is_label, names)):
        raise ConfigurationError(
            f"agent.labels is {text!r}; allowed are up to {MAX_LABELS} names of 1 to {MAX_LABEL} letters, digits and - _ . between"
            " commas"
        )


def _meant(text: str, choices: Iterable[str]) -> str:
    """Return a sentence that names the closest choice; empty: none is close."""
    close = get_close_matches(text, choices, 1)
    return f" Did you mean {close[0]}?" if close and close[0] else ""


def _check_preset(preset: str) -> None:
    if preset not in PRESETS:
        meant = _meant(preset, PRESETS)
        raise ConfigurationError(f"agent.preset is {preset!r}; allowed are {', '.join(PRESETS[1:])} and none.{meant}")


def _check_seconds(setting: str, seconds: int, most: int) -> None:
    if not 1 <= seconds <= most:
        raise ConfigurationError(f"agent.{setting} is {seconds} (seconds); allowed are 1 to {most}")


def code_of(text: str) -> tuple[int, int]:
    """Return data and parity fragments of `M+K`. Raises `ConfigurationError`."""
    data, _, parity = text.partition("+")
    if data.isdecimal() and parity.isdecimal() and 1 <= int(data) <= MAX_DATA and 0 <= int(parity) <= MAX_PARITY:
        return int(data), int(parity)
    raise ConfigurationError(
        f"agent.fragments is {text!r}; it should look like 4+2: 1 to {MAX_DATA} fragments that rebuild a state, and 0 to"
        f" {MAX_PARITY} more, each on a machine of its own"
    )


def split_address(text: str, setting: str = "address") -> tuple[str, int]:
    """Return HOST and PORT of `HOST:PORT` or `[IPV6]:PORT`."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535 or not host:
        raise ConfigurationError(f"{setting} is {text!r}; it should look like 192.168.1.20:9464 (port 0: any free one)")
    return host.strip("[]"), int(port)


def _strategies(chosen: str) -> tuple[str, ...]:
    """Return the names of strategies: of packages only when a shipped one is not meant, because that search is slow."""
    return ALL_STRATEGIES if chosen in ALL_STRATEGIES else (*ALL_STRATEGIES, *package_strategies())


def _check_host_names(text: str) -> None:
    for name in filter(None, text.split(",")):
        if not name.isascii() or not name.translate(str.maketrans("", "", "-._")).isalnum():
            raise ConfigurationError(
                f"agent.metrics_hosts has {name!r}; it should be names with commas between, such as pi1,pi1.lan"
            )


def _from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    import tomllib

    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    tables = {name: document.get(name, {}) for name in ("agent", "preset", *SECTIONS)}
    unknown = [key for key in document if key not in tables]
    if unknown or not all(isinstance(table, dict) for table in tables.values()):
        unknown_text = ", ".join(unknown) or "a value"
        raise ConfigurationError(
            f"{path}: only the tables [agent], [executors], [paths], [placement], [preset], [quota] and [scaling] are known, "
            f"found {unknown_text}"
        )
    settings: dict[str, Any] = dict(tables["agent"])
    for name in SECTIONS:
        settings |= {f"{name}_{key}": value for key, value in tables[name].items()}
    settings |= {"preset" if key == "name" else f"preset_{key}": value for key, value in tables["preset"].items()}
    return settings


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return setting → its variable; the variable of a table counts before `AGILEDART_AGENT__TABLE_KEY`."""
    prefixes = {"AGILEDART_AGENT__": ""} | {f"AGILEDART_{name.upper()}__": f"{name}_" for name in SECTIONS}
    return {
        f"{table}{name[len(prefix) :].lower()}": name
        for prefix, table in prefixes.items()
        for name in environment
        if name.startswith(prefix)
    }


def _typed(key: str, value: object, default: object, origin: str) -> object:
    """Return `value` in the type of the setting's default."""
    try:
        if isinstance(default, bool):
            if isinstance(value, str) and value.lower() in ("1", "true", "yes", "0", "false", "no"):
                return value.lower() in ("1", "true", "yes")
            if isinstance(value, bool):
                return value
            raise ValueError
        if isinstance(default, int):
            if isinstance(value, bool):
                raise ValueError
            return int(str(value))
        if isinstance(default, float):
            if isinstance(value, bool):
                raise ValueError
            return float(str(value))
        if isinstance(default, Path):
            return Path(str(value)).expanduser().absolute()  # a relative path must mean the same to other processes
        return str(value)
    except ValueError:
        kind = "true or false" if isinstance(default, bool) else "a number"
        if isinstance(default, int) and not isinstance(default, bool):
            kind = "a whole number"
        raise ConfigurationError(f"{origin}: agent.{key} is {value!r}; it should be {kind}") from None
