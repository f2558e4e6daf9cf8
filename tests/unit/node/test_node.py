"""One node alone and among strangers: its refusals, and messages that it ignores or survives."""

import re
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agiledart_dataflow.plan.deployment import DeploymentPart, InstancePlace, PlacedInstance
from agiledart_kernel.codec import encode, tags_of
from agiledart_kernel.counts import MAX_COUNT
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.frames import application_number
from agiledart_kernel.instants import SECOND, Instant
from agiledart_kernel.machine import Completed, Effect, Event, Failed, Message, Received, Send
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.config import NodeConfig
from agiledart_node.node import Node
from agiledart_node.protocol import NODE_CODEC, NodeMessage
from agiledart_node.reaching.reachability_messages import ReachabilityMessage
from agiledart_node.scheduling.messages import SchedulingMessage
from agiledart_node.wire.audit_messages import AuditMessage
from agiledart_node.wire.ban_messages import BanMessage
from agiledart_node.wire.change_messages import ChangeMessage
from agiledart_node.wire.checkpoint_messages import CheckpointMessage
from agiledart_node.wire.commands import CreateToken, Info, ListApplications, TraceRoute
from agiledart_node.wire.drain_messages import DrainMessage
from agiledart_node.wire.effects import (
    PrepareExecutors,
    RefusedRequest,
    Replied,
    StartInstances,
    StartLocalSources,
    StopInstances,
)
from agiledart_node.wire.events import InstanceFinished, UserRequest
from agiledart_node.wire.feed_messages import FeedMessage
from agiledart_node.wire.formation_messages import (
    Acknowledged,
    CollectJoins,
    Deploy,
    Deployed,
    Drain,
    FormationMessage,
    Halt,
    InstancesEnded,
    RequestStop,
    StartFlow,
)
from agiledart_node.wire.lease_messages import LeaseMessage
from agiledart_node.wire.log_list_messages import LogListMessage
from agiledart_node.wire.model_messages import ModelMessage
from agiledart_node.wire.mopa_messages import MopaMessage
from agiledart_node.wire.quorum_recovery_messages import QuorumRecoveryMessage
from agiledart_node.wire.recovery_messages import RecoveringMessage
from agiledart_node.wire.renewal_messages import RenewalMessage
from agiledart_node.wire.secret_messages import SecretMessage
from agiledart_overlay.protocol import OverlayMessage
from agiledart_overlay.wire.events import JoinRing, RouteMessage
from agiledart_recovery.wire.messages import RecoveryMessage

ME, SCHEDULER, STRANGER = Peer(NodeId(5 << 120), 1, "me"), Peer(NodeId(9 << 120), 1, "sch"), Peer(NodeId(3 << 120), 1)


class Bench:
    """A ring of one node, its effects kept."""

    def __init__(self, **config: Any) -> None:
        self.node = Node(ME, NodeConfig(**config), RandomStream(1, "node"))
        self.now = 0
        self.effects: list[Effect] = []
        self.feed(JoinRing(()))
        self.take()

    def feed(self, event: Event) -> None:
        self.now += 1_000_000
        self.effects += self.node.step(event, Instant(self.now))

    def hear(self, sender: Peer, message: Message) -> None:
        self.feed(Received(sender, message))

    def take(self) -> list[Effect]:
        taken, self.effects = self.effects, []
        return taken

    def of(self, kind: type) -> list[Any]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    def told(self, to: Peer) -> list[Message]:
        return [effect.message for effect in self.of(Send) if effect.to.node == to.node]


def part(copies: int = 1, version: int = 1, planned: int = 1, bundle: bytes = b"code", **fields: Any) -> DeploymentPart:
    """`planned` instances of stage 0 here, the first `copies` of them to be started now; a sink at the scheduler."""
    places = tuple(InstancePlace(0, index, 0) for index in range(planned))
    made = DeploymentPart(
        "app",
        version,
        application_number("app", version, 7),
        1,
        b"spec",
        b"plan",
        bundle,
        (ME, SCHEDULER),
        tuple(PlacedInstance(0, index) for index in range(copies)),
        (*places, InstancePlace(1, 0, 1)),
        (),
        SCHEDULER,
        SCHEDULER,
    )
    return msgspec.structs.replace(made, **fields)


def deployed(bench: Bench, **fields: Any) -> Bench:
    bench.hear(SCHEDULER, Deploy(1, part(**fields)))
    (start,) = bench.of(StartInstances)
    bench.feed(Completed(start.request, {(0, 0): "host:1"}))
    assert bench.told(SCHEDULER)[-1].addresses[0].address == "host:1"  # type: ignore[attr-defined]
    bench.take()
    return bench


def test_tags_of_all_messages_between_agents_are_unique() -> None:
    tags = tags_of(NodeMessage)
    of_recovery = (*get_args(RecoveringMessage), *get_args(RecoveryMessage))
    of_applications = (
        *get_args(FormationMessage),
        *get_args(SchedulingMessage),
        *of_recovery,
        *get_args(BanMessage),
        *get_args(AuditMessage),
        *get_args(SecretMessage),
        *get_args(FeedMessage),
        *get_args(LogListMessage),
        *get_args(LeaseMessage),
        *get_args(RenewalMessage),
        *get_args(ChangeMessage),
        *get_args(DrainMessage),
        *get_args(CheckpointMessage),
        *get_args(QuorumRecoveryMessage),
        *get_args(ModelMessage),
        *get_args(MopaMessage),
        *get_args(ReachabilityMessage),
    )
    assert len(tags) == len(get_args(OverlayMessage)) + len(of_applications)
    assert all(350 <= kind.__struct_config__.tag < 370 for kind in get_args(SchedulingMessage))
    assert all(480 <= kind.__struct_config__.tag < 490 for kind in get_args(QuorumRecoveryMessage))
    assert all(430 <= kind.__struct_config__.tag < 440 for kind in get_args(BanMessage))
    assert all(373 <= kind.__struct_config__.tag < 420 for kind in of_recovery)
    assert all(50 <= kind.__struct_config__.tag < 90 for kind in get_args(FormationMessage))


def test_a_plan_made_on_an_outdated_load_is_refused_before_anything_starts() -> None:
    bench = Bench()
    bench.hear(SCHEDULER, Deploy(1, msgspec.structs.replace(part(copies=3, planned=3), most=2)))
    (answer,) = bench.told(SCHEDULER)
    assert isinstance(answer, Deployed)
    assert answer.is_full
    assert not bench.of(StartInstances)
    bench.hear(SCHEDULER, Deploy(2, msgspec.structs.replace(part(copies=3, planned=3), most=3)))
    assert len(bench.of(StartInstances)) == 1


def test_a_repeated_deployment_starts_once_and_gets_the_same_answer() -> None:
    bench = deployed(Bench())
    bench.hear(SCHEDULER, Deploy(1, part()))
    assert not bench.of(StartInstances)
    assert isinstance(bench.told(SCHEDULER)[0], Deployed)


def test_a_part_without_instances_prepares_executors_and_reserves_capacity() -> None:
    bench = Bench(capacity=2)
    bench.hear(SCHEDULER, Deploy(1, part(copies=0, planned=2, executors=2)))
    (prepare,) = bench.of(PrepareExecutors)
    assert prepare.slots == (0, 1)
    assert prepare.part.bundle == b"code"
    other = part(version=1, planned=1, application="other")
    bench.hear(SCHEDULER, Deploy(2, other))
    refused = bench.told(SCHEDULER)[-1]
    assert isinstance(refused, Deployed)
    assert refused.is_full
    bench.hear(SCHEDULER, Deploy(3, part(copies=1, planned=2, bundle=b"")))
    (start,) = bench.of(StartInstances)
    assert start.part.bundle == b"code", "the code of the first part"


def test_a_voter_without_instances_prepares_nothing() -> None:
    bench = Bench()
    bench.hear(SCHEDULER, Deploy(1, part(copies=0, planned=0, bundle=b"")))
    assert not bench.of(PrepareExecutors)
    assert bench.node.hosted == (("app", 1),)


def test_an_instance_start_error_is_reported_in_the_drivers_words() -> None:
    bench = Bench()
    bench.hear(SCHEDULER, Deploy(1, part()))
    (start,) = bench.of(StartInstances)
    bench.feed(Failed(start.request, "trips: /x does not exist on me"))
    answer = bench.told(SCHEDULER)[-1]
    assert isinstance(answer, Deployed)
    assert answer.reason == "trips: /x does not exist on me"


def test_an_instance_that_the_driver_lost_is_a_failure() -> None:
    bench = Bench()
    bench.hear(SCHEDULER, Deploy(1, part()))
    (start,) = bench.of(StartInstances)
    bench.feed(Completed(start.request, {}))
    assert "did not report the addresses" in bench.told(SCHEDULER)[-1].reason  # type: ignore[attr-defined]


def test_a_halt_during_instance_start_ends_the_instances_once_started() -> None:
    bench = Bench()
    bench.hear(SCHEDULER, Deploy(1, part()))
    (start,) = bench.of(StartInstances)
    bench.hear(SCHEDULER, Halt(2, "app", 1, "enough"))
    bench.take()
    bench.feed(Completed(start.request, {(0, 0): "host:1"}))
    assert bench.of(StopInstances)
    assert not bench.told(SCHEDULER)
    bench.hear(SCHEDULER, Deploy(3, part()))
    assert bench.told(SCHEDULER)[-1].reason == "enough"  # type: ignore[attr-defined]


def test_a_start_of_a_halted_plan_does_not_end_the_instances_of_the_next_plan() -> None:
    bench = Bench()
    bench.hear(SCHEDULER, Deploy(1, part()))
    (start,) = bench.of(StartInstances)
    bench.hear(SCHEDULER, Halt(2, "app", 1, "another node is full"))
    bench.hear(SCHEDULER, Deploy(3, part(attempt=2)))
    bench.take()
    bench.feed(Failed(start.request, "app was stopped while it started"))
    assert bench.node.hosted == (("app", 1),)
    assert not bench.of(StopInstances)


def test_a_newer_version_replaces_an_older_one_and_never_the_reverse() -> None:
    bench = deployed(Bench())
    bench.hear(SCHEDULER, Deploy(2, part(version=2)))
    assert bench.of(StopInstances) == [StopInstances("app", 1)]
    assert bench.node.hosted == (("app", 2),)
    bench.hear(SCHEDULER, Deploy(3, part(version=1)))
    assert "version 2 was submitted" in bench.told(SCHEDULER)[-1].reason  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "message",
    [
        Deploy(1, part()),
        Deploy(1, msgspec.structs.replace(part(), assignment=(InstancePlace(0, 0, 7),), scheduler=STRANGER)),
        Halt(1, "app", 1, "no reason"),
        Drain(1, "app", 1),
        StartFlow(1, "app", 1),
        InstancesEnded(1, "app", 1, {"0.0": {}}),
        RequestStop(1, "app", 1, True),
    ],
    ids=lambda message: type(message).__name__,
)
def test_messages_from_unknown_nodes_change_nothing(message: Message) -> None:
    bench = deployed(Bench())
    bench.hear(STRANGER, message)
    assert not bench.of(StopInstances)
    assert not bench.of(StartInstances)
    assert not bench.of(StartLocalSources)
    assert bench.node.hosted == (("app", 1),)


def test_row_flow_starts_once() -> None:
    bench = deployed(Bench())
    for request in (7, 8):
        bench.hear(SCHEDULER, StartFlow(request, "app", 1))
    assert bench.of(StartLocalSources) == [StartLocalSources("app", 1)]
    assert [message.request for message in bench.told(SCHEDULER)] == [7, 8]  # type: ignore[attr-defined]


def test_finished_instances_are_reported_until_the_coordinator_acknowledges() -> None:
    bench = deployed(Bench())
    bench.feed(InstanceFinished("app", 1, 0, 0, {"n": 1}))
    (ended,) = bench.told(SCHEDULER)
    assert isinstance(ended, InstancesEnded)
    assert ended.reports == {"0.0": {"n": 1}}
    bench.hear(SCHEDULER, Acknowledged(ended.request))
    bench.take()
    bench.feed(InstanceFinished("app", 1, 0, 0, {"n": 1}))
    assert not bench.told(SCHEDULER), "reported and acknowledged already"


def test_requests_before_the_ring_is_up_or_for_the_agent_are_refused() -> None:
    lonely = Node(ME, NodeConfig(), RandomStream(1, "n"))
    (refused,) = lonely.step(UserRequest(1, ListApplications()), Instant(0))
    assert isinstance(refused, RefusedRequest)
    assert "not in a ring yet" in refused.text
    bench = Bench()
    bench.feed(UserRequest(2, CreateToken()))
    assert "by the agent" in bench.of(RefusedRequest)[0].text


def test_too_many_requests_are_refused_not_queued() -> None:
    bench = Bench(max_conversations=3)
    for request in range(8):
        bench.hear(SCHEDULER, CollectJoins(request, 1, (STRANGER.node,)))
    bench.feed(UserRequest(9, ListApplications()))
    assert "busy" in bench.of(RefusedRequest)[0].text
    assert not bench.of(Replied)


def test_inconsistent_settings_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="join_key"):
        NodeConfig(join_key="random").validate()
    with pytest.raises(ConfigurationError, match="capacity"):
        NodeConfig(capacity=0).validate()
    with pytest.raises(ConfigurationError, match="max_pending"):
        NodeConfig(max_pending=-1).validate()
    with pytest.raises(ConfigurationError, match="capacity_check_interval_ns"):
        NodeConfig(capacity_check_interval_ns=0).validate()
    with pytest.raises(ConfigurationError, match="by_taste"):
        NodeConfig(placement_objective="by_taste").validate()
    with pytest.raises(ConfigurationError, match="hill_climbing:by_taste"):
        NodeConfig(placement="hill_climbing:by_taste").validate()
    NodeConfig(placement="of-a-package").validate()  # the agent's settings look for the package
    with pytest.raises(ConfigurationError, match="resend_ns"):
        NodeConfig(resend_ns=5 * SECOND).validate()


_peers = st.sampled_from([ME, SCHEDULER, STRANGER, Peer(NodeId(0)), Peer(NodeId(5 << 120), 9, "me")])
_small = st.one_of(st.integers(-1, 3), st.sampled_from([-(1 << 63), 1 << 31, (1 << 64) - 1]))
_counts = st.one_of(st.integers(0, 3), st.sampled_from([1 << 31, MAX_COUNT]))
_words = st.sampled_from(["app", "", "x" * 100])


def _values(kind: Any) -> st.SearchStrategy[Any]:
    by_type: dict[Any, st.SearchStrategy[Any]] = {
        int: _small,
        str: _words,
        bool: st.booleans(),
        bytes: st.sampled_from([b"", b"code", b"\xc1"]),
        Peer: _peers,
        NodeId: _peers.map(lambda peer: peer.node),
        DeploymentPart: st.deferred(lambda: _structs(DeploymentPart)),
    }
    if kind in by_type:
        return by_type[kind]
    args = get_args(kind)
    if get_origin(kind) is Annotated and args[0] is str:
        longest = args[1].max_length  # our own values keep to it; values from others are cut off by the codec
        pattern = args[1].pattern
        return _words.filter(
            lambda word: (
                (longest is None or len(word) <= longest) and (pattern is None or bool(re.search(pattern, word)))
            )
        )
    if get_origin(kind) is Annotated and args[0] is int:
        most = args[1].le
        return _counts if most is None else _counts.map(lambda count: min(count, most))
    if get_origin(kind) is Annotated and args[0] is bytes and (least := args[1].min_length):
        return st.just(b"\1" * least)  # a hash
    if get_origin(kind) is Annotated:
        return _values(args[0])
    if get_origin(kind) in (UnionType, Union):
        return st.one_of(*map(_values, args))
    if kind is NoneType:
        return st.none()
    if args and args[-1] is Ellipsis:
        return st.lists(_values(args[0]), max_size=3).map(tuple)
    if args and getattr(kind, "__origin__", None) is tuple:
        return st.tuples(*map(_values, args))
    if args and getattr(kind, "__origin__", None) is dict:
        return st.dictionaries(
            st.sampled_from(["0.0", "1.0", "x", "9.9.9"]),
            st.just({"statistics": 3} if args[1] is Any else 2),
            max_size=2,
        )
    return _structs(kind)


def _structs(kind: Any) -> st.SearchStrategy[Any]:
    fields = {field.name: _values(field.type) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **fields)


_messages = st.one_of(*(_structs(kind) for kind in get_args(FormationMessage | SchedulingMessage)))
_deploys = st.builds(
    lambda n, made: Deploy(n, made), _small, st.sampled_from([part(), part(version=2), part(copies=0)])
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(_peers, st.one_of(_messages, _deploys)), max_size=12))
def test_every_message_survives_the_wire_and_none_raises(script: list[tuple[Peer, Message]]) -> None:
    """Answers, too: however large the numbers are that a member says."""
    bench = Bench()
    for sender, message in script:
        bench.hear(sender, NODE_CODEC.decode(encode(message)))
        for effect in bench.of(Send):
            NODE_CODEC.decode(encode(effect.message))
        for start in bench.of(StartInstances):
            bench.feed(Completed(start.request, {placed.copy: "h:1" for placed in start.part.instances}))
        bench.take()


@settings(deadline=None)
@given(st.binary(max_size=64))
def test_malformed_routed_messages_are_counted(payload: bytes) -> None:
    bench = Bench()
    bench.feed(RouteMessage(ME.node, payload))
    bench.feed(UserRequest(1, Info()))
    (reply,) = bench.of(Replied)
    assert sum(reply.body["ignored_messages"].values()) == 1


def test_a_probe_for_a_key_of_this_node_is_answered_at_once() -> None:
    bench = Bench()
    bench.feed(UserRequest(1, TraceRoute("00")))
    (reply,) = bench.of(Replied)
    assert reply.body["hops"] == 0
