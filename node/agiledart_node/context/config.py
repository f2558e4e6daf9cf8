"""Figures of a node: the overlay's, and those of forming and watching applications. Durations are nanoseconds."""

from dataclasses import dataclass, field

from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_overlay.wire.config import OverlayConfig
from agiledart_placement.strategy import STRATEGIES, strategy_named
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


MAX_GROWN = 8
"""Executors to which a run may grow on a node for its cores alone."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Settings of one node."""

    overlay: OverlayConfig = field(default_factory=OverlayConfig.lan)
    executors: int = 1
    """Executor processes that this node gives to one application unless the submission says otherwise."""
    cores: int = 1
    """Processor cores that the instances of this node share; for how busy it says that it is."""
    executors_in_memory: int = 8
    """Executor processes of one application for which this node has memory: as far as it goes when a stage grows."""
    capacity: int = 64
    """Operator instances of all applications that this node takes."""
    software: str = ""
    """Version of AgileDart that runs here."""
    max_applications_per_owner: int = 0
    """Applications that one submitter may have at one time; 0: any number."""
    confines: bool = True
    """Users' code that runs here is kept from this node's keys and records."""
    max_ops_balanced: int = 2
    """Operator instances above which a node counts as full while others have room (balance rule)."""
    placement: str = STRATEGIES[0]
    """Placement strategy of applications that this node deploys."""
    scaling_policy: str = POLICIES[0]
    """Policy by which stages with limits scale themselves, of the runs that this node coordinates."""
    scaling_interval_ns: int = 5 * SECOND
    """Time from one decision to the next; what is measured are always the last five seconds."""
    max_instances: int = 0
    """Instances of one application that scale by themselves, for each node of the ring; 0: any number."""
    recovery: RecoveryConfig = field(default_factory=RecoveryConfig)
    join_key: str = "node_id"
    """Where JOINs meet: `node_id`, the sink's own id, or `hash`, the hash of it (then one link more)."""

    resend_ns: int = 400 * MILLISECOND
    """Time after which an unanswered question is sent again."""
    ask_timeout_ns: int = 3 * SECOND
    """Time after which a silent node counts as unreachable while an application is formed."""
    join_timeout_ns: int = 2 * SECOND
    """Time for which a sink waits for the JOINs of one attempt."""
    join_attempts: int = 4
    """The first JOIN and 3 repetitions."""
    start_timeout_ns: int = 30 * SECOND
    """Time in which a node must start the instances of one part: processes start, user code is imported."""
    report_timeout_ns: int = 1 * SECOND
    """Time for which `status`, `nodes` and `logs` wait for other nodes."""
    record_deadline_ns: int = 30 * SECOND
    """Time for which a change of an application's state is tried again."""
    consequence_ns: int = 3_500 * MILLISECOND
    """Time for which a broken link between instances waits for its cause; longer than a dead peer takes to be
    declared."""
    drain_timeout_ns: int = 120 * SECOND
    """Time in which a draining application must end before it is cut."""
    leave_timeout_ns: int = 3 * SECOND
    """Time for which a leaving node tries to tell of its applications."""
    patrol_interval_ns: int = 10 * SECOND
    """Time between looks at the records of hosted applications, for parts that everybody forgot."""
    soft_state_ns: int = 60 * SECOND
    """Life of what a node remembers of JOINs."""

    scheduler_scope: str = "zone"
    """Whom an application may have as scheduler: `zone`, one of the zone of the agent that was asked, or `region`, any."""
    apps_per_scheduler: int = 50
    """Applications that one scheduler serves; one more makes one scheduler more."""
    election_sample: int = 8
    """Peers among which a scheduler is elected."""
    scheduler_copies: int = 2
    """Leaves that keep a scheduler's list of applications."""
    gossip_interval_ns: int = 1 * SECOND
    """Time between exchanges of what is known of schedulers, while any is known. Longer: less traffic, later renewal."""
    gossip_lifetime: int = 10
    """Intervals for which an advertisement counts without a newer version."""
    gossip_fanout: int = 3
    """Peers to which news of schedulers are passed on at once."""
    renew_interval_ns: int = 5 * SECOND
    """Time between the heartbeats of an application and its scheduler."""
    resign_ns: int = 600 * SECOND
    """Time without an application after which a scheduler resigns."""
    planning_slots: int = 16
    """Applications that one scheduler deploys at one time; more wait in line."""
    max_pending: int = 32
    """Applications that wait at one scheduler because no node has room for them; more are refused. 0: nobody waits."""
    capacity_check_interval_ns: int = 5 * SECOND
    """Time after which a scheduler looks again whether there is room for those."""
    pending_timeout_ns: int = 600 * SECOND
    """Longest time for which an application waits for room."""
    planning_ns: int = 0
    """Time that planning takes; for simulations, in which computing takes none."""

    guards: int = 2
    """Nodes that watch an application although they host nothing of it."""
    voting_guards: int = 5
    """The same, of one that is saved by epochs: they vote on it, so that no host of it needs to, and two of five may be lost."""
    max_survey: int = 128
    """Nodes asked for their load before an application is placed."""
    max_conversations: int = 1_024
    """Conversations of several rounds at one time; more requests are refused."""
    max_hosted: int = 256
    """Applications of which this node hosts or guards a part."""

    @property
    def max_executors(self) -> int:
        """Executors to which one application may grow here, while there are cores and memory."""
        return max(self.executors, min(self.cores, self.executors_in_memory, MAX_GROWN))

    @classmethod
    def lan(cls, *, executors: int = 1) -> "NodeConfig":
        """One site."""
        return cls(executors=executors)

    @classmethod
    def simulation(cls, nodes: int) -> "NodeConfig":
        """Quiet when idle: intervals stretched with the number of nodes, as those of the overlay."""
        stretch = max(1, min(nodes // 100, 16))
        return cls(
            overlay=OverlayConfig.simulation(nodes),
            gossip_interval_ns=stretch * SECOND,
            renew_interval_ns=5 * stretch * SECOND,
        )

    def validate(self) -> None:
        """Raises ConfigurationError when a field, or the relation of two, makes no sense."""
        self.overlay.validate()
        strategy_named(self.placement)
        policy_named(self.scaling_policy)
        if self.scaling_interval_ns < SECOND or self.max_instances < 0:
            raise ConfigurationError("scaling_interval_ns >= 1 s and max_instances >= 0 must hold")
        if self.join_key not in ("node_id", "hash"):
            raise ConfigurationError(f"join_key = {self.join_key!r}: must be node_id or hash")
        if self.scheduler_scope not in ("zone", "region"):
            raise ConfigurationError(f"scheduler_scope = {self.scheduler_scope!r}: must be zone or region")
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} = {getattr(self, name)}: must be at least 1")
        if self.max_pending < 0:
            raise ConfigurationError(f"max_pending = {self.max_pending}: must be at least 0")
        if not 0 < self.capacity_check_interval_ns <= self.pending_timeout_ns:
            raise ConfigurationError("0 < capacity_check_interval_ns <= pending_timeout_ns must hold")
        if not self.resend_ns < self.report_timeout_ns <= self.ask_timeout_ns:
            raise ConfigurationError("resend_ns < report_timeout_ns <= ask_timeout_ns must hold")
