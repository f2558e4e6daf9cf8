"""Invariants of provisioning under random loads, delays and failures: capacity, at least one instance, each unit paid once."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agiledart_kernel.randomness import RandomStream
from agiledart_provisioning.actions import Action, ActionKind, applied
from agiledart_provisioning.provisioning_policy import ProvisioningPolicy
from agiledart_provisioning.provisioning_settings import ProvisioningSettings
from agiledart_provisioning.registry import POLICIES, policy_named
from agiledart_provisioning.replay.model_cluster import ModelCluster, RandomDelays
from agiledart_provisioning.replay.replay_run import ReplayRun
from agiledart_provisioning.replay.replay_workload import VM, ReplayWorkload, manufacturing, random_walk
from agiledart_provisioning.state import Host, MachineOffer, OperatorType, ProvisioningState

SETTINGS = ProvisioningSettings()


def walk(seed: int, minutes: int) -> ReplayWorkload:
    whole = manufacturing("stepwise")
    machines = random_walk(RandomStream(seed, "walk"))
    return ReplayWorkload(whole.types, whole.edges, whole.sources, machines, minutes * 60)


class CheckedPolicy:
    """A policy whose every action is checked against the state before it."""

    def __init__(self, inner: ProvisioningPolicy) -> None:
        self._inner = inner

    def decide(self, state: ProvisioningState, random: RandomStream) -> tuple[Action, ...]:
        actions = self._inner.decide(state, random)
        now = state
        for action in actions:
            if action.kind is ActionKind.RELEASE:
                assert sum(host.is_running for host in now.hosts) > 1
            now = applied(now, action)
            check_capacity(now)
            for entry in now.types:
                assert now.instances_of(entry.name) >= min(1, state.instances_of(entry.name))
        return actions


def check_capacity(state: ProvisioningState) -> None:
    for host in state.hosts:
        assert state.free_cpu(host) >= -1e-9, host
        assert state.free_memory(host) >= -1e-9, host


def run_checked(seed: int, name: str, btu_minutes: int, failures: float, minutes: int) -> None:
    policy = CheckedPolicy(policy_named(name, SETTINGS))
    delays = RandomDelays(RandomStream(seed, "delays"), failures, failures)
    replay = ReplayRun(
        walk(seed, minutes), policy, MachineOffer(VM.cpu, VM.memory, 1.0), btu_minutes * 60.0, seed, delays=delays
    )

    def look(cluster: ModelCluster, now: float) -> None:
        serving = cluster.running(now)
        assert all(serving[entry.name] >= 1 for entry in manufacturing("stepwise").types)

    replay.on_round = look
    result = replay.run()
    for lease in result.leases:
        ended = lease.ended_s if lease.ended_s is not None else float(result.seconds)
        # Each started unit was paid once; a release in the window may have paid one more before it was clear that the host can go.
        assert lease.paid_until_s >= min(ended, result.seconds) - 1 or lease.ended_s is not None
        assert lease.units <= (ended - lease.began_s) / lease.btu_s + 2
        assert lease.ended_s != inf


@pytest.mark.parametrize("name", ["btu", "threshold"])
@given(seed=st.integers(0, 2**32), btu=st.sampled_from([10, 30]), failures=st.sampled_from([0.0, 0.3]))
@settings(max_examples=8, deadline=None)
def test_no_replay_breaks_an_invariant(name: str, seed: int, btu: int, failures: float) -> None:
    run_checked(seed, name, btu, failures, 15)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["btu", "threshold"])
def test_a_thousand_walks_break_no_invariant(name: str) -> None:
    for seed in range(1_000):
        run_checked(seed, name, (10, 30, 60)[seed % 3], 0.1 * (seed % 3), 30)


TYPES = st.builds(
    OperatorType,
    name=st.just(""),
    cpu=st.integers(1, 2_000),
    memory=st.integers(1, 4_000),
    image_mb=st.integers(0, 100),
    slo_ms=st.integers(1, 2_000),
    duration_ms=st.none() | st.integers(0, 5_000),
    durations_ms=st.lists(st.integers(0, 5_000), max_size=7).map(tuple),
    queue=st.integers(0, 1_000),
    scalings=st.integers(0, 20),
)


@st.composite
def states(draw: st.DrawFn) -> ProvisioningState:
    """Draw a state whose hosts hold what fits."""
    types = tuple(
        OperatorType(f"t{number}", *[getattr(entry, name) for name in OperatorType.__slots__[1:]])
        for number, entry in enumerate(draw(st.lists(TYPES, min_size=1, max_size=4)))
    )
    hosts = []
    for number in range(draw(st.integers(1, 4))):
        instances: dict[str, int] = {}
        cpu, memory = 4_096.0, 7_168.0
        for entry in types:
            wanted = draw(st.integers(0, 3))
            fitting = int(min(wanted, cpu // entry.cpu, memory // entry.memory))
            if fitting:
                instances[entry.name] = fitting
            cpu, memory = cpu - fitting * entry.cpu, memory - fitting * entry.memory
        images = frozenset(draw(st.sets(st.sampled_from([entry.name for entry in types]))))
        running = number == 0 or draw(st.booleans())
        hosts.append(Host(f"h{number}", 4_096, 7_168, 1, draw(st.integers(0, 1_200)), images, instances, running))
    return ProvisioningState(600, 600, types, tuple(hosts), MachineOffer(4_096, 7_168, 1))


@pytest.mark.parametrize("name", POLICIES)
@given(state=states(), seed=st.integers(0, 1_000))
@settings(max_examples=60, deadline=None)
def test_actions_are_possible_in_their_order_and_the_state_stays(
    name: str, state: ProvisioningState, seed: int
) -> None:
    before = repr(state)
    first = CheckedPolicy(policy_named(name, SETTINGS)).decide(state, RandomStream(seed))
    assert repr(state) == before
    assert first == policy_named(name, SETTINGS).decide(state, RandomStream(seed))
