"""Settings of a node: those of the overlay, and those for deploying and watching applications. Durations are nanoseconds."""

from dataclasses import dataclass, field

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_node.wire.lease_messages import LeaseTerms
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_placement.registry import STRATEGIES, PlacementChoice, parse_choice
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_scaling.registry import POLICIES, policy_named

_COUNTS = (
    "executors",
    "cores",
    "executors_in_memory",
    "capacity",
    "max_ops_balanced",
    "join_attempts",
    "max_survey",
    "max_hosted",
    "apps_per_scheduler",
    "election_sample",
    "gossip_lifetime",
    "gossip_fanout",
    "planning_slots",
)


MOVES = ("off", "advise", "on", "mopa")
"""Treatment of runs with better hosts: they are never looked at, reported on, moved, or moved where their hosts ask for it."""

LIVE_OBJECTIVES = ("response", "traffic", "usage", "energy", "score", "availability")
"""Objectives whose figures nodes report."""

MAX_GROWN = 8
"""Executors to which a run may grow on a node on account of its cores."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Settings of one node."""

    overlay: OverlayConfig = field(default_factory=OverlayConfig.lan)
    executors: int = 1
    """Executor processes that this node gives to one application unless the submission requests another number."""
    cores: int = 1
    """Processor cores that the instances of this node share; basis of its reported load."""
    labels: tuple[str, ...] = ()
    """Names of abilities of this node, such as `gpu`; steps of a topology may need them."""
    speed_permille: int = 0
    """Speed of one core, 1000 is the reference; 0: not measured."""
    executors_in_memory: int = 8
    """Executor processes of one application for which this node has memory: limit for a growing stage."""
    capacity: int = 64
    """Operator instances of all applications that this node takes."""
    software: str = ""
    """Version of AgileDart on this node."""
    max_applications_per_owner: int = 0
    """Applications that one submitter may have at one time; 0: any number."""
    confines: bool = True
    """True if users' code on this node is kept away from the node's keys and records."""
    exposes_python: bool = False
    """True if users' code on this node can change the Python that its agent runs next."""
    lease: LeaseTerms | None = None
    """Lease of this node's machine, when a gate has leased it."""
    max_ops_balanced: int = 2
    """Operator instances above which a node counts as full while others have capacity (balance rule)."""
    placement: str = STRATEGIES[0]
    """Placement strategy of applications that this node deploys."""
    placement_moves: str = "advise"
    """One of `MOVES`: whether saved runs that this node coordinates are moved to better hosts, or only reported on."""
    placement_objective: str = "response"
    """Metric that such moves improve."""
    placement_look_ns: int = 30 * SECOND
    """Time from one look at the placement of these runs to the next."""
    scaling_policy: str = POLICIES[0]
    """Scaling policy for stages with limits, of the runs that this node coordinates."""
    scaling_interval_ns: int = 5 * SECOND
    """Time from one scaling decision to the next; each uses measurements of the last five seconds."""
    max_instances: int = 0
    """Instances of one application that scales automatically, per node of the ring; 0: any number."""
    recovery: RecoveryConfig = field(default_factory=RecoveryConfig)
    join_key: str = "node_id"
    """Key to which JOINs are routed: `node_id`, the sink's own id, or `hash`, its hash (with one more link)."""

    resend_ns: int = 400 * MILLISECOND
    """Time after which an unanswered request is sent again."""
    ask_timeout_ns: int = 3 * SECOND
    """Time after which a silent node counts as unreachable during deployment."""
    join_timeout_ns: int = 2 * SECOND
    """Time for which a sink waits for the JOINs of one attempt."""
    join_attempts: int = 4
    """The first JOIN and 3 repetitions."""
    start_timeout_ns: int = 30 * SECOND
    """Time limit for a node to start the instances of one part: start processes, import user code."""
    report_timeout_ns: int = 1 * SECOND
    """Time for which `status`, `nodes` and `logs` wait for other nodes."""
    record_deadline_ns: int = 30 * SECOND
    """Time for which a node retries to write a changed application state."""
    consequence_ns: int = 3_500 * MILLISECOND
    """Time for which a broken link between instances waits for its cause; longer than the detection of a dead peer takes."""
    drain_timeout_ns: int = 120 * SECOND
    """Time limit for draining an application; then it is cut."""
    leave_timeout_ns: int = 3 * SECOND
    """Time for which a leaving node tries to report on its applications."""
    patrol_interval_ns: int = 10 * SECOND
    """Time between checks of the records of hosted applications, which find parts that no other node remembers."""
    ended_ms: int = 30 * 86_400_000
    """Time for which hosts keep the record of an ended application on their disks; 0: in the memory of the ring only."""
    soft_state_ns: int = 60 * SECOND
    """Lifetime of a node's soft state about JOINs."""

    scheduler_scope: str = "zone"
    """Region from which an application's scheduler comes: `zone`, that of the asked agent, or `region`, any zone."""
    apps_per_scheduler: int = 256
    """Applications that one scheduler serves; one more requires another node. The paper has 50: then a network of one node, which
    may host `max_hosted`, could not run more."""
    election_sample: int = 8
    """Peers among which a scheduler is elected."""
    scheduler_copies: int = 2
    """Leaf-set members that keep a copy of a scheduler's list of applications."""
    gossip_interval_ns: int = 1 * SECOND
    """Time between gossip rounds about schedulers, while any is known. Longer: less traffic, later renewal."""
    gossip_lifetime: int = 10
    """Intervals for which an advertisement is valid without a newer version."""
    gossip_fanout: int = 3
    """Peers that receive news of schedulers at once."""
    renew_interval_ns: int = 5 * SECOND
    """Time between the heartbeats of an application and its scheduler."""
    resign_ns: int = 600 * SECOND
    """Time without an application after which a scheduler resigns."""
    planning_slots: int = 16
    """Applications that one scheduler deploys at one time; further ones wait in its pending queue."""
    max_pending: int = 32
    """Applications that wait at one scheduler for free capacity; further ones are refused. 0: none waits."""
    capacity_check_interval_ns: int = 5 * SECOND
    """Time between a scheduler's checks for capacity for pending applications."""
    pending_timeout_ns: int = 600 * SECOND
    """Longest time for which an application waits for capacity."""
    planning_ns: int = 0
    """Simulated duration of planning; in simulations computing takes no time."""

    guards: int = 2
    """Nodes that watch an application without hosting it."""
    voting_guards: int = 5
    """The same for an application with epochs: these nodes vote, so no host has to, and any two of five may be lost."""
    max_survey: int = 128
    """Nodes asked for their load before an application is placed."""
    max_conversations: int = 1_024
    """Pending multi-round requests at one time; further requests are refused."""
    max_hosted: int = 256
    """Applications of which this node hosts or guards a part."""

    @property
    def max_executors(self) -> int:
        """Return the executors to which one application may grow here, given cores and memory."""
        return max(self.executors, min(self.cores, self.executors_in_memory, MAX_GROWN))

    @classmethod
    def lan(cls, *, executors: int = 1) -> "NodeConfig":
        """Return the settings for one site."""
        return cls(executors=executors)

    @classmethod
    def simulation(cls, nodes: int) -> "NodeConfig":
        """Return settings that are quiet when idle: intervals grow with the number of nodes, like those of the overlay."""
        stretch = max(1, min(nodes // 100, 16))
        return cls(
            overlay=OverlayConfig.simulation(nodes),
            gossip_interval_ns=stretch * SECOND,
            renew_interval_ns=5 * stretch * SECOND,
        )

    def placement_choice(self, asked: str) -> PlacementChoice:
        """Return strategy and objective of an application: those that its user asked for, else this node's settings."""
        try:
            choice = parse_choice(asked, LIVE_OBJECTIVES, allows_any_package=True)
        except ConfigurationError:  # from an agent that did not check it
            choice = PlacementChoice()
        return choice.or_else(self.placement, self.placement_objective)

    def validate(self) -> None:
        """Raise ConfigurationError when a field, or the relation of two, is invalid."""
        self.overlay.validate()
        parse_choice(self.placement, LIVE_OBJECTIVES, allows_any_package=True)
        policy_named(self.scaling_policy)
        if self.placement_moves not in MOVES or self.placement_objective not in LIVE_OBJECTIVES:
            raise ConfigurationError(
                f"placement_moves = {self.placement_moves!r}, placement_objective = {self.placement_objective!r}: must be one of"
                f" {', '.join(MOVES)}, and one of {', '.join(LIVE_OBJECTIVES)}"
            )
        if self.scaling_interval_ns < SECOND or self.max_instances < 0:
            raise ConfigurationError("scaling_interval_ns >= 1 s and max_instances >= 0 must hold")
        if self.join_key not in ("node_id", "hash"):
            raise ConfigurationError(f"join_key = {self.join_key!r}: must be node_id or hash")
        if self.scheduler_scope not in ("zone", "region"):
            raise ConfigurationError(f"scheduler_scope = {self.scheduler_scope!r}: must be zone or region")
        for name in _COUNTS:
            if (count := getattr(self, name)) < 1:
                raise ConfigurationError(f"{name} = {count}: must be at least 1")
        if self.max_pending < 0:
            raise ConfigurationError(f"max_pending = {self.max_pending}: must be at least 0")
        if not 0 < self.capacity_check_interval_ns <= self.pending_timeout_ns:
            raise ConfigurationError("0 < capacity_check_interval_ns <= pending_timeout_ns must hold")
        if not self.resend_ns < self.report_timeout_ns <= self.ask_timeout_ns:
            raise ConfigurationError("resend_ns < report_timeout_ns <= ask_timeout_ns must hold")
