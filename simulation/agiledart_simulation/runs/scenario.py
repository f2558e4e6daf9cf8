"""Scenario of a run as data: how many nodes, which network, which faults when. All of it drawn from one seed.

Each seed also draws which kinds of faults it uses at all ("swarm testing"): a run without restarts finds other mistakes than
one with everything. A named scenario narrows the draw; any option may be fixed by hand. A fixed option does not change what is
drawn for the others, and a scenario with all options fixed is the same run again.

Source: [Swarm testing], Groce et al. 2012.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.node_id import ID_BITS
from agiledart_kernel.randomness import RandomStream

KINDS: Final = (
    "join",
    "crowd",
    "kill",
    "silent",
    "adjacent",
    "restart",
    "image",
    "leave",
    "pause",
    "pauses",
    "stutter",
    "clock",
    "island",
    "partition",
    "split",
    "oneway",
    "flap",
    "clog",
    "swizzle",
    "weather",
    "write",
    "route",
    "topic",
    "watch",
)
"""Faults that may happen to a ring; `ring_nemesis` and `link_faults` say what each is."""

_LATER: Final = ("watch", "lose-quorum", "resign")
"""Kinds that are drawn apart from the others, since they came later: so a seed still means the same run but for them.
"""

_OF_APPLICATIONS: Final = ("submit", "stop", "kill", "silent", "restart", "leave", "pause", "weather")

OF_RECOVERY: Final = (
    "kill",
    "power",
    "restart",
    "pause",
    "rival",
    "partition",
    "heal",
    "weather",
    "handover",
    "replace",
    "wipe",
    "blackout",
    "lose-quorum",
    "resign",
    "stall",
)
OF_LOSSES: Final = (
    "lose", "kill", "power", "restart", "pause", "rival", "partition", "heal", "weather", "handover", "silence", "resign",
)  # fmt: skip
OF_SCALING: Final = (
    "grow", "shrink", "rebalance", "handover", "drain", "both", "strike", "silence", "kill", "restart", "pause", "rival",
    "partition", "heal", "weather", "power",
)  # fmt: skip
OF_ROUTES: Final = (
    "cut", "loss", "cut-there", "cut-back", "cut-any", "cut-all", "loss-any", "kill-relay", "freeze-relay", "hold-receiver",
    "hold-sender", "slow-operator", "untold", "reset", "replay", "circle", "no-direct", "low-liar", "stalling-liar",
)  # fmt: skip
OF_PLACING: Final = ("slow", "die", "drain", "void", "lag", "lie", "silent", "user", "scale", "planner", "coordinator")
_STORMS: Final = (
    "join", "crowd", "kill", "silent", "adjacent", "restart", "leave", "pause", "row", "partition", "split",
)  # fmt: skip

MOMENTS: Final = (
    "nothing", "crash-joiner", "crash-range-owner", "crash-successor", "leave-range-owner", "leave-successor", "pause-joiner",
    "pause-range-owner", "pause-successor", "restart-joiner", "restart-range-owner", "restart-successor",
)  # fmt: skip
"""Fault at one moment of a join: what happens to which node."""

OF_LEASES: Final = (
    "quota", "payment", "lost-before", "lost-after", "slow", "twice", "listed-late", "never-joins", "start-fails", "stolen-token",
    "vanish", "before-call", "before-answer", "kill", "gone", "ring-partition", "cloud-partition",
)  # fmt: skip
"""Faults of clouds, gates and leased hosts; `leases_run` says what each is."""

PERMANENT: Final = ("none", "dead", "mute", "deaf", "oneway", "stutter", "flap")
"""Faults that may stay in the quiet phase."""

SCENARIOS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "swarm": ("everything, in random company", KINDS),
    "joins": ("nodes come, alone and in crowds", ("join", "crowd", "weather", "route", "write", "leave")),
    "crashes": (
        "nodes die, alone and with their neighbours, and come back",
        ("join", "kill", "silent", "adjacent", "restart", "image", "route", "write", "watch"),
    ),
    "pauses": (
        "nodes sleep, are late, and have wrong clocks",
        ("pause", "pauses", "stutter", "clock", "route", "write", "watch"),
    ),
    "partitions": (
        "the network is cut, wholly, in one direction, again and again",
        ("island", "partition", "split", "oneway", "flap", "clog", "swizzle", "route", "write", "watch"),
    ),
    "applications": ("users submit and stop applications while schedulers and hosts die", _OF_APPLICATIONS),
    "recovery": (
        "hosts of a run with state die, sleep, lose power and disks, are cut off; its stages move",
        OF_RECOVERY,
    ),
    "losses": (
        "states of the last epoch are lost with their hosts and fragments, and the run rolls back to the previous epoch",
        OF_LOSSES,
    ),
    "scaling": (
        "stages of a run are rescaled and moved while its hosts die and sleep",
        OF_SCALING,
    ),
    "routes": (
        "rows choose their path between two executors while links lose and break, relays die and lie, and costs are stale",
        OF_ROUTES,
    ),
    "placing": (
        "stages move to better hosts while links turn slow, measures lie or are missing, nodes die, others change the runs",
        OF_PLACING,
    ),
    "leases": ("gates lease and release hosts while clouds lose, double and delay answers, and gates die", OF_LEASES),
    "weather": ("messages are lost, doubled, late and out of order", ("weather", "route", "write", "join")),
    "storms": ("joins among crashes, sleeps and cuts in short order, on slow links", _STORMS),
    "moments": ("one fault at one moment of a join: seeds 1 to 3360 are all of them", MOMENTS),
    "crowds": ("many nodes join at once, or one every so often", ("join",)),
}
"""Scenario → its description, and the kinds it draws from."""

NEVER_BROKEN: Final = (
    "applications",
    "recovery",
    "losses",
    "scaling",
    "routes",
    "placing",
    "storms",
    "moments",
    "crowds",
    "leases",
)
"""Scenarios in which no fault stays in the quiet phase."""

_LINK_MS: Final = 100
"""Longest delay of a message in the scenarios of admission: so a join is long enough to be hit."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Options of one run; with the code they replay it.

    Args:
        name: which kinds may be drawn.
        seed: of the world, and of every choice that the options leave open.
        nodes: at the start.
        id_bits: length of ids; in a small ring distances tie and slots collide.
        leaf_count: size of a leaf set.
        steps: number of faults.
        step_ms: most time between two of them.
        kinds: which faults may happen.
        loss, duplicate, reorder, burst, spike: chances of the network in the phase of faults.
        spike_ms: how late a message may be.
        host_rate: bytes a second in and out of a node; 0: no limit.
        drift_ppm: how wrong a clock may be.
        zones: how many groups of near nodes; 0: nodes are anywhere.
        max_down: most nodes that are down or cut off at one time.
        max_pause_ms: longest sleep of a node.
        seeds_each: seeds that a starting node gets.
        preset: settings of the overlay: lan, wan or simulation.
        permanent: which fault stays in the quiet phase.
        queue: order of events at one time: heap or wheel.
        quiet_s: time after the last fault in which all must be right again.
        link_ms: longest delay of a message, a twentieth of it being the shortest; 0: a quiet local network.
        cluster: most ids lie within so many of each other; 0: anywhere.

    In `moments` there are `steps` joiners in one key range, and the fault comes `step_ms` later; in `crowds` a node starts every
    `step_ms`, or all within 10 ms.
    """

    name: str
    seed: int
    nodes: int
    id_bits: int
    leaf_count: int
    steps: int
    step_ms: int
    kinds: tuple[str, ...]
    loss: float
    duplicate: float
    reorder: float
    burst: float
    spike: float
    spike_ms: int
    host_rate: int
    drift_ppm: int
    zones: int
    max_down: int
    max_pause_ms: int
    seeds_each: int
    preset: str
    permanent: str
    queue: str
    quiet_s: int
    link_ms: int = 0
    cluster: int = 0

    @property
    def digit_bits(self) -> int:
        """Return the bits of a digit. Digits of short ids are short, so that there are several."""
        return 4 if self.id_bits > 8 else 2

    @property
    def options(self) -> dict[str, Any]:
        """Return all options by name, as plain values."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def command(self) -> str:
        """Return the command line that replays the run."""
        words = ["agiledart", "simulate", self.name]
        for name, value in self.options.items():
            if name != "name":
                words.append(f"--{name.replace('_', '-')}")
                words.append((",".join(value) or "none") if isinstance(value, tuple) else str(value))
        return " ".join(words)

    def validate(self) -> None:
        """Raise ConfigurationError when an option makes no sense."""
        known = SCENARIOS[self.name][1] if self.name in NEVER_BROKEN else KINDS
        unknown = [kind for kind in self.kinds if kind not in known]
        if unknown or not self.kinds:
            raise ConfigurationError(f"--kinds: {', '.join(unknown) or 'none'}: known are {', '.join(known)}")
        if self.name == "moments" and len(self.kinds) > 1:
            raise ConfigurationError("--kinds: one fault at one moment of a join is one kind")
        if self.permanent not in PERMANENT:
            raise ConfigurationError(f"--permanent {self.permanent}: known are {', '.join(PERMANENT)}")
        if self.nodes < 1 or self.id_bits not in (8, 16, 32, 64, ID_BITS):
            raise ConfigurationError("--nodes must be at least 1, --id-bits 8, 16, 32, 64 or 128")
        if self.most_ids > 1 << self.id_bits:
            raise ConfigurationError(f"--id-bits {self.id_bits} is too short for {self.most_ids} nodes")
        if self.preset not in ("lan", "wan", "simulation"):
            raise ConfigurationError(f"--preset {self.preset}: known are lan, wan and simulation")
        if self.queue not in ("heap", "wheel"):
            raise ConfigurationError(f"--queue {self.queue}: known are heap and wheel")

    @property
    def most_ids(self) -> int:
        """Return the number of nodes that may exist in the whole run."""
        return self.nodes + min(4 * self.steps, 100)


def draw(seed: int, most_nodes: int = 25, name: str = "swarm", fixed: Mapping[str, Any] | None = None) -> Scenario:
    """Draw the scenario of a seed; `fixed` options are not drawn. Raise ConfigurationError when they make no sense."""
    if name not in SCENARIOS:
        raise ConfigurationError(f"there is no scenario {name}; known are {', '.join(SCENARIOS)}")
    random = RandomStream(seed, "scenario", name)
    choice, index = random.choice, random.index
    nodes = 3 + index(most_nodes - 2)
    is_small = random.uniform() < 0.6
    known = SCENARIOS[name][1]
    kinds = tuple(kind for kind in known if kind not in _LATER and random.uniform() < 0.5) or known[:2]
    later = RandomStream(seed, "scenario", name, "later")
    kinds += tuple(kind for kind in known if kind in _LATER and later.uniform() < 0.5)
    has_weather = "weather" in kinds
    steps = 8 + index(25)
    drawn = Scenario(
        name=name,
        seed=seed,
        nodes=nodes,
        id_bits=choice((8, 8, 16)) if is_small and nodes <= 40 else ID_BITS,
        leaf_count=choice((24, 24, 8)),
        steps=steps,
        step_ms=50 + index(3_000),
        kinds=kinds,
        loss=choice((0.0, 0.01, 0.05)) if has_weather else 0.0,
        duplicate=choice((0.0, 0.02, 0.2)) if has_weather else 0.0,
        reorder=choice((0.0, 0.1, 0.5)) if has_weather else 0.0,
        burst=choice((0.0, 0.0, 0.01)) if has_weather else 0.0,
        spike=choice((0.0, 0.0, 0.01)) if has_weather else 0.0,
        spike_ms=choice((100, 1_000, 3_000)),
        host_rate=choice((0, 0, 0, 0, 256_000)),
        drift_ppm=choice((0, 100, 500, 4_000)),
        zones=choice((0, 0, 2, 5)),
        max_down=max(1, min(nodes // 3, 11)),
        max_pause_ms=choice((300, 2_000, 8_000)),
        seeds_each=1 + index(3),
        preset="lan" if nodes <= 200 else "simulation",
        permanent=choice(PERMANENT) if random.uniform() < 0.4 else "none",
        queue=choice(("heap", "wheel")),
        quiet_s=60,
    )
    if drawn.leaf_count == 8:
        drawn = replace(drawn, max_down=min(3, drawn.max_down))
    if name in _OF_THEIR_OWN:
        drawn = _OF_THEIR_OWN[name](drawn, most_nodes, later)
    if fixed:
        drawn = replace(drawn, **fixed)
    drawn.validate()
    return drawn


def _applications(drawn: Scenario, most_nodes: int, random: RandomStream) -> Scenario:
    """Return options for whole nodes: submissions always happen."""
    kinds = tuple(dict.fromkeys(("submit", *drawn.kinds)))
    return replace(
        drawn, kinds=kinds, steps=2 * drawn.steps, id_bits=ID_BITS, leaf_count=24, permanent="none", quiet_s=120
    )


def _recovery(drawn: Scenario, most_nodes: int, random: RandomStream) -> Scenario:
    """Return options for hosts of a run: every partition heals, and at most two hosts are down at once."""
    kinds = tuple(dict.fromkeys((*drawn.kinds, "heal")))
    return replace(drawn, kinds=kinds, id_bits=ID_BITS, leaf_count=24, permanent="none", max_down=2, quiet_s=240)


def _losses(drawn: Scenario, most_nodes: int, random: RandomStream) -> Scenario:
    """Return the same with lost states in each run; steps are long enough for epochs between."""
    kinds = tuple(dict.fromkeys(("lose", *drawn.kinds)))
    return replace(_recovery(replace(drawn, kinds=kinds), most_nodes, random), step_ms=random.choice((2_000, 5_000)))


def _scaling(drawn: Scenario, most_nodes: int, random: RandomStream) -> Scenario:
    """Return the same with changes all the time; half of the seeds have changes and network faults only."""
    changes = OF_SCALING[:6]
    faults = OF_SCALING[6:] if random.uniform() < 0.5 else ("silence", "weather", "heal")
    step_ms = random.choice((200, 1_000, 2_000))
    return replace(_recovery(drawn, most_nodes, random), kinds=(*changes, *faults), step_ms=step_ms)


def _routes(drawn: Scenario, most_nodes: int, random: RandomStream) -> Scenario:
    """Return options for two ends and some relays. A link that came and went is trusted again in five minutes at most."""
    return replace(
        _calm(drawn),
        nodes=min(most_nodes, 3 + random.index(6)),
        step_ms=random.choice((1_000, 4_000, 8_000)),
        drift_ppm=0,
        quiet_s=420,
    )


def _placing(drawn: Scenario, most_nodes: int, random: RandomStream) -> Scenario:
    """Return options for a few nodes; a move that failed often waits 16 minutes for the next."""
    return replace(
        _calm(drawn),
        nodes=min(most_nodes, 3 + random.index(7)),
        steps=20 + random.index(20),
        step_ms=random.choice((20_000, 60_000)),
        drift_ppm=0,
        quiet_s=10_800,
    )


def _calm(drawn: Scenario) -> Scenario:
    """Return the common options of the scenarios of admission: slow links without other faults."""
    return replace(
        drawn, zones=0, host_rate=0, leaf_count=24, permanent="none", max_pause_ms=8_000, link_ms=_LINK_MS,
        id_bits=ID_BITS, duplicate=0.0, reorder=0.0, burst=0.0, spike=0.0, preset="lan",
    )  # fmt: skip


def _storm(drawn: Scenario, most_nodes: int, random: RandomStream) -> Scenario:
    """Return options for storms: some rings have so short ids, or so near ones, that many joiners enter one key range."""
    choice, is_small, is_cluster = random.choice, random.uniform() < 0.3, random.uniform() < 0.3
    nodes = min(most_nodes, choice((3, 5, 8, 13, 25, 40)))
    leaf_count = 16 if is_small else 24
    return replace(
        _calm(drawn),
        kinds=tuple(kind for kind in _STORMS if random.uniform() < 0.7) or ("join",),
        nodes=nodes,
        id_bits=8 if is_small else ID_BITS,
        leaf_count=leaf_count,
        cluster=160 if is_cluster and not is_small else 0,
        loss=choice((0.0, 0.01, 0.02, 0.05)),
        drift_ppm=choice((0, 4_900, 4_900)),
        step_ms=choice((10, 50, 200, 1_000, 4_000)),
        max_down=max(1, min(nodes, leaf_count // 2 - 1)),
        seeds_each=3,
        quiet_s=90,
    )


def _moment(drawn: Scenario, most_nodes: int, random: RandomStream) -> Scenario:
    """Return options of a moment: seeds count through all kinds, sizes of the ring, numbers of joiners, and moments 20 ms apart."""
    number, kind = divmod(drawn.seed, len(MOMENTS))
    number, size = divmod(number, 4)
    moment, joiners = divmod(number, 2)
    return replace(
        _calm(drawn),
        kinds=(MOMENTS[kind],),
        nodes=(1, 2, 3, 5)[size],
        steps=(1, 3)[joiners],
        step_ms=20 * (moment % 35),
        loss=0.0,
        drift_ppm=0,
        max_down=1,
        seeds_each=4,
    )


def _crowd(drawn: Scenario, most_nodes: int, random: RandomStream) -> Scenario:
    return replace(
        _calm(drawn),
        nodes=most_nodes,
        steps=0,
        step_ms=random.choice((0, 1, 5, 20)),
        loss=random.choice((0.0, 0.01)),
        drift_ppm=0,
        quiet_s=120,
    )


def _leases(drawn: Scenario, most_nodes: int, random: RandomStream) -> Scenario:
    """Return options for gates and a cloud: a fault and a change of demand every eight minutes."""
    return replace(_calm(drawn), steps=12 + random.index(13), quiet_s=3_600)


_OF_THEIR_OWN: Final[dict[str, Callable[[Scenario, int, RandomStream], Scenario]]] = {
    "applications": _applications,
    "recovery": _recovery,
    "losses": _losses,
    "scaling": _scaling,
    "routes": _routes,
    "placing": _placing,
    "storms": _storm,
    "moments": _moment,
    "crowds": _crowd,
    "leases": _leases,
}
