"""A2 and A6: a token of so many uses admits so many keys, under any losses and deaths."""

from typing import Any

import pytest

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId, node_id_of_key
from agiledart_kernel.observation import Observation
from agiledart_kernel.registrations import closed_token_target
from agiledart_node.registering.observations import TokenOverused
from agiledart_node.registering.token_uses import uses_key
from agiledart_node.wire.commands import Tokens as ListTokens
from agiledart_simulation.world.network import NetworkConfig
from tests.simulation.mesh import WALL_MS
from tests.simulation.tokens import HOUR, NOW, TOKEN, Tokens, key_number

LOSSY = NetworkConfig(loss=0.01, duplicate=0.02, reorder=0.02)


def crowd(seed: int, *, gates: int = 20, keys: int = 100, uses: int = 90, network: NetworkConfig = LOSSY) -> Tokens:
    """A mesh after so many keys tried a token of so many uses, each at several nodes if need be."""
    mesh = Tokens(seed, gates, network=network).build()
    mesh.crowd(keys, list(mesh.ids), 60, SECOND, allowed=uses)
    assert mesh.world.run_until(lambda: len(decided(mesh)) == keys, 90 * SECOND), f"{len(decided(mesh))} are decided"
    return mesh


def decided(mesh: Tokens) -> list[bytes]:
    return [key for key, verdict in mesh.verdicts.items() if verdict.reason != "unregistered"]


def check(mesh: Tokens, uses: int, token: bytes = TOKEN) -> None:
    """Exactly so many are in, numbered without gaps, and every copy of the record says so."""
    mesh.world.run_for(3 * SECOND)
    members = mesh.members()
    assert len(members) == uses
    assert {verdict.reason for verdict in mesh.verdicts.values()} <= {"", "used up"}
    newest = max(len(copy.members) for copy in mesh.copies(token).values())
    assert newest == uses, "a former replica may have an old copy, no node a longer one"
    for name in [node.me.name for node in mesh.live][:: max(1, len(mesh.ids) // 8)]:
        (row,) = listed(mesh, name)
        assert (row["used"], row["excess"], row["state"]) == (uses, 0, "used up")
        assert sorted(bytes.fromhex(one["key"]) for one in row["members"]) == members
    assert sorted(mesh.verdicts[key].number for key in members) == list(range(1, uses + 1))


def listed(mesh: Tokens, at: str) -> list[dict[str, Any]]:
    """The list of tokens, as soon as it is written: it comes after the keys."""
    for _ in range(20):
        if rows := mesh.answer(mesh.ask(at, ListTokens()))["tokens"]:
            return list(rows)
        mesh.world.run_for(SECOND)
    return []


def test_a_token_of_one_use_admits_one_key_and_names_it() -> None:
    mesh = Tokens(1, 6).build()
    first, second = key_number(1), key_number(2)
    assert mesh.once(first, "a2", allowed=1).number == 1
    for at in ("a2", "a5", "a1"):
        told = mesh.once(second, at, allowed=1)
        assert told.reason == "used up"
        assert f"node {node_id_of_key(first).short}, key {first.hex()[:16]}, at 2013-01-07 00:00:" in told.detail
    assert [mesh.once(first, at, allowed=1).number for at in ("a2", "a4")] == [1, 1]
    mesh.known.clear()  # of one that came before its record was shown, the ring knows
    assert mesh.once(first, "a3", allowed=0, join_before=0).number == 1
    assert mesh.once(second, "a3", allowed=0, join_before=0).reason == "unregistered"


def test_a_use_beyond_the_limit_is_refused_elsewhere_and_after_the_root_died() -> None:
    mesh = Tokens(2, 8).build()
    assert [mesh.once(key_number(n), f"a{n}", allowed=2).number for n in (1, 2)] == [1, 2]
    root = min(mesh.ids, key=lambda node: abs(node - uses_key(TOKEN)))
    mesh.crash(mesh.names[root])
    mesh.world.run_for(10 * SECOND)
    for at in [name for name in mesh.by_name if name != mesh.names[root]]:
        told = mesh.once(key_number(3), at, allowed=2)
        assert (told.reason, told.detail.startswith("2 times, the last by node ")) == ("used up", True)
    mesh.start(root, next(node for node in mesh.ids if node != root))
    mesh.world.run_for(10 * SECOND)
    assert mesh.once(key_number(3), mesh.names[root], allowed=2).reason == "used up"
    assert mesh.once(key_number(1), mesh.names[root], allowed=2).number == 1


def test_ninety_of_a_hundred_joiners_are_admitted_under_loss() -> None:
    check(crowd(3), 90)


@pytest.mark.parametrize("loss", [0.1, 0.2])
def test_under_any_loss_no_node_is_counted_twice_or_admitted_uncounted(loss: float) -> None:
    check(crowd(4, gates=8, keys=30, uses=20, network=NetworkConfig(loss=loss, duplicate=0.1, reorder=0.1)), 20)


def test_uses_are_counted_with_every_message_lost_once_or_duplicated() -> None:
    """The n-th message of the counting is lost, for each n; then each comes twice."""
    for number in range(24):
        mesh = Tokens(5, 4).build()
        begin, arrivals, sent = mesh.world.now, mesh.world.network.arrivals, 0

        def arrive(*link: Any, number: int = number, arrivals: Any = arrivals) -> tuple[int, ...]:
            nonlocal sent
            sent += 1
            there: tuple[int, ...] = arrivals(*link)
            return there * 2 if number == 0 else () if sent == number else there

        mesh.world.network.arrivals = arrive  # type: ignore[method-assign,assignment]
        until = begin + 30 * SECOND
        for n in range(3):
            mesh.come(key_number(n), list(mesh.ids), until, allowed=2)
        assert mesh.world.run_until(lambda mesh=mesh: len(decided(mesh)) == 3, 30 * SECOND)
        check(mesh, 2)


def test_two_rings_that_merge_keep_both_counts_and_report_the_excess() -> None:
    told: list[Observation] = []
    mesh = Tokens(6, 10)
    mesh.observations = lambda node, observation: told.append(observation)
    mesh.build()
    left, right = mesh.ids[:5], mesh.ids[5:]
    assert mesh.once(key_number(0), mesh.names[left[0]], allowed=3).number == 1
    mesh.world.network.partition(tuple(left))
    mesh.world.run_for(20 * SECOND)
    for n, at in ((1, left[1]), (2, left[2]), (11, right[1]), (12, right[2])):
        assert not mesh.once(key_number(n), mesh.names[at], allowed=3).reason
    for n, at in ((3, left[0]), (13, right[0])):
        assert mesh.once(key_number(n), mesh.names[at], allowed=3).reason == "used up"
    mesh.world.network.heal()

    def one() -> bool:
        copies = mesh.copies().values()
        return bool(copies) and all(len(copy.members) == 5 for copy in copies)

    assert mesh.world.run_until(one, 120 * SECOND)
    mesh.known.clear()
    for n in (0, 1, 2, 11, 12):
        assert not mesh.once(key_number(n), mesh.names[right[3]], allowed=3).reason, "an admitted node stays"
    assert mesh.once(key_number(4), mesh.names[left[3]], allowed=3).reason == "used up"
    over = [one for one in told if isinstance(one, TokenOverused)]
    assert (over[0].allowed, over[0].used) == (3, 5)


def test_a_ring_that_lost_its_counts_learns_them_from_members() -> None:
    mesh = Tokens(7, 5).build()
    for n in (1, 2):
        assert not mesh.once(key_number(n), "a1", allowed=3).reason
    for name in list(mesh.by_name):
        mesh.crash(name)
    for index, node in enumerate(mesh.ids):
        mesh.start(node, *mesh.ids[:index][:1])
    assert mesh.world.run_until(lambda: all(node.joined for node in mesh.live), 30 * SECOND)
    mesh.world.run_for(3 * SECOND)
    assert mesh.once(key_number(5), "a1", allowed=3).number == 3, "a1 remembered two"
    mesh.known.clear()
    assert not mesh.once(key_number(2), "a4", allowed=3).reason
    assert mesh.once(key_number(6), "a3", allowed=3).reason == "used up"


def test_a_receipt_counts_when_the_ring_lost_it_but_never_beyond_the_limit() -> None:
    mesh = Tokens(8, 4).build()
    past = NOW - HOUR
    assert mesh.once(key_number(1), "a1", allowed=1, join_before=past).reason == "token expired"
    told = mesh.once(key_number(1), "a1", allowed=1, join_before=past, counted_at=past - 5)
    assert (told.number, told.wall_seconds) == (1, past - 5)
    assert mesh.once(key_number(2), "a2", allowed=1, join_before=past, counted_at=past - 3).reason == "used up"


def test_an_expired_or_revoked_token_admits_no_node_and_removes_none() -> None:
    mesh = Tokens(9, 4).build()
    assert not mesh.once(key_number(1), "a1").reason
    over = mesh.once(key_number(2), "a2", join_before=NOW - 1)
    assert (over.reason, over.detail) == ("token expired", "it admitted keys until 2013-01-06 23:59:59 UTC")
    assert not mesh.once(key_number(1), "a2", join_before=NOW - 1).reason
    machine = mesh.machine("a3")
    machine.parts.registering._verifier.banned[closed_token_target(TOKEN)] = WALL_MS // 1_000 + HOUR
    assert mesh.once(key_number(3), "a3").reason == "revoked"
    assert not mesh.once(key_number(1), "a3").reason


def test_a_non_member_admits_no_node() -> None:
    mesh = Tokens(10, 2)
    mesh.start(mesh.ids[1])
    mesh.world.crash(mesh.ids[1])
    mesh.start(mesh.ids[0], mesh.ids[1])
    mesh.meet(key_number(1), mesh.ids[0])
    mesh.world.run_for(MILLISECOND)
    assert mesh.verdicts[key_number(1)].reason == "unregistered"


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_nine_hundred_of_a_thousand_joiners_are_admitted_under_loss() -> None:
    """A6: 1,000 joiners within five seconds, each a node that joins the ring when it is let in."""
    mesh = Tokens(11, 1_040, network=NetworkConfig(loss=0.01))
    gates = mesh.ids[:40]
    for index, node in enumerate(gates):
        mesh.start(node, *gates[:index][-2:])
        mesh.world.run_for(100 * MILLISECOND)
    assert mesh.world.run_until(lambda: all(node.joined for node in mesh.live), 60 * SECOND)
    newcomers: dict[bytes, NodeId] = {key_number(n): node for n, node in enumerate(mesh.ids[40:])}
    mesh.on_member = lambda key, at: mesh.start(newcomers[key], at, gates[0])
    mesh.crowd(1_000, gates, 60)
    began = mesh.world.now
    assert mesh.world.run_until(lambda: len(decided(mesh)) == 1_000, 60 * SECOND)
    took = (mesh.world.now - began) / SECOND
    joined = mesh.world.run_until(lambda: sum(node.joined for node in mesh.live) == 940, 60 * SECOND)
    print(
        f"1,000 keys decided after {took:.1f} s, their nodes in the ring after {(mesh.world.now - began) / SECOND:.1f} s"
    )
    assert joined
    check(mesh, 900)
