"""Every message that an agent's key may send, by its structure: none raises, names a path, or makes a node keep without bound."""

import contextlib
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.instants import MILLISECOND, SECOND, Instant
from agiledart_kernel.machine import Received
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_node.protocol import NODE_CODEC, NodeMessage
from agiledart_node.records.application import ApplicationRecord
from agiledart_node.wire.effects import ForgetRun, KeepFile
from agiledart_recovery.limits import MAX_RUNS
from agiledart_recovery.wire.messages import Accept, Committed, Promise, Reset
from tests.adversary.test_names import LEADING_OUT
from tests.simulation.mesh import Mesh

THIEF = Peer(NodeId(9 << 100), 1, "thief", "192.0.2.9:9")
WORDS = ["taxi", "9", "running", *LEADING_OUT]
DEPTH = 6
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    NoneType: st.none(),
    bool: st.booleans(),
    int: st.one_of(st.integers(-1, 3), st.sampled_from([(1 << 63) - 1, 1 << 31, 1 << 62])),
    float: st.floats(allow_nan=True),
    str: st.sampled_from(WORDS),
    bytes: st.sampled_from([b"", b"\x90", bytes(16), bytes(32), b"\xff" * 200]),
    NodeId: st.sampled_from([bytes(16), THIEF.node.to_bytes16()]),
}


def values_of(kind: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return plain data in the form of a type, without its limits: the decoder has to keep them."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _least(args[0], args[1], depth)
    if origin in (Union, UnionType):
        return st.one_of(*(values_of(arg, depth) for arg in args))
    if kind in PLAIN:
        return PLAIN[kind]
    if origin is tuple or kind is tuple:
        if args and args[-1] is not Ellipsis:
            return st.tuples(*(values_of(arg, depth + 1) for arg in args)).map(list)
        return st.just([]) if depth > DEPTH or not args else st.lists(values_of(args[0], depth + 1), max_size=2)
    if origin is dict or kind is dict:
        return st.just({})
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from([member.value for member in kind])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        config = kind.__struct_config__
        fields = [values_of(field.type, depth + 1) for field in msgspec.structs.fields(kind)]
        tag = [st.just(config.tag)] if config.tag is not None else []
        return st.tuples(*tag, *fields).map(list) if config.array_like else st.just({})
    return st.sampled_from([None, 0, "x"])


def _least(kind: Any, limits: msgspec.Meta, depth: int) -> st.SearchStrategy[Any]:
    """Return values that keep the lower limits: with random ones hardly a message would be decoded."""
    if kind is int and limits.ge is not None:
        return st.one_of(st.integers(int(limits.ge), int(limits.ge) + 3), st.sampled_from([1 << 31, 1 << 62]))
    if kind is bytes and limits.min_length:
        return st.just(bytes(limits.min_length))
    if get_origin(kind) is tuple and limits.min_length:
        return st.lists(values_of(get_args(kind)[0], depth + 1), min_size=limits.min_length, max_size=3)
    if kind is str and limits.pattern:
        return st.sampled_from(["taxi", "taxi", "9", "../x"])
    return values_of(kind, depth)


RAW = st.one_of(*(values_of(kind) for kind in get_args(NodeMessage))).map(encode)


def decoded(raw: bytes) -> Any:
    try:
        return NODE_CODEC.decode(raw)
    except RemoteProtocolError:
        return None


def attacked(script: list[bytes]) -> None:
    """Have a node of a mesh hear these messages; none may raise, nor keep a file under a name that leads out."""
    mesh = Mesh(1, 1).build()
    node = mesh.machine("a1")
    now = Instant(mesh.world.now + SECOND)
    for number, raw in enumerate(script):
        if (message := decoded(raw)) is None:
            continue
        at = Instant(now + number * MILLISECOND)
        for effect in node.step(Received(THIEF, message), at):
            if isinstance(effect, KeepFile | ForgetRun):
                assert "/" not in effect.application
                assert not effect.application.startswith(".")
    machine = node.recovery_service.machine
    assert len(machine.voter_slots) <= MAX_RUNS
    assert len(machine.participants) <= MAX_RUNS


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(RAW, min_size=20, max_size=120))
def test_no_message_of_an_admitted_agent_raises(script: list[bytes]) -> None:
    attacked(script)


@pytest.mark.soak
@settings(max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(RAW, min_size=20, max_size=400))
def test_no_message_of_an_admitted_agent_raises_for_an_hour(script: list[bytes]) -> None:
    attacked(script)


@pytest.mark.parametrize("kind", [Promise, Accept, Reset, Committed, ApplicationRecord], ids=lambda kind: kind.__name__)
def test_messages_with_many_limits_are_decoded_too(kind: Any) -> None:
    """Else the search above would only try the decoder."""
    found: list[Any] = []
    codec: Codec[Any] = Codec(kind)

    @settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(values_of(kind).map(encode))
    def search(raw: bytes) -> None:
        with contextlib.suppress(RemoteProtocolError):
            found.append(codec.decode(raw))

    search()
    assert found
