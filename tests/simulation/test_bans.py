"""A3: a ban reaches every node within seconds, also those that were away; any node may bring it."""

import random
from typing import Any

import pytest

from agiledart_kernel.bans import ban_terms
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_kernel.randomness import RandomStream
from agiledart_kernel.signed_commands import VerifiedCommand, sign_command, verify_command
from agiledart_node.node import Node
from agiledart_node.wire.commands import SetBan
from agiledart_node.wire.effects import BansChanged, RefusedRequest, Replied
from agiledart_node.wire.events import UserRequest
from agiledart_simulation.world.network import NetworkConfig
from agiledart_transport.certificates import check_signature
from tests.keys import HOUR, Authority, key_of, public_of
from tests.simulation.mesh import WALL_MS, Mesh

NET = Authority(now=WALL_MS // 1_000)
ADMIN = NET.link("authority", (), "root", "act", "admin", depth=1, until=12 * HOUR)
THIEF = public_of("thief")


class Banning(Mesh):
    """A mesh whose nodes verify bans; each reports when one came into force."""

    def __init__(self, seed: int, count: int, **more: Any) -> None:
        self.in_force_at: dict[NodeId, dict[bytes, int]] = {}
        self.draw = random.Random(seed).randbytes
        self.checked: dict[bytes, VerifiedCommand] = {}
        super().__init__(seed, count, **more)

    def _make(self, peer: Peer, random: RandomStream) -> Node:
        return Node(peer, self.config, random, verify=self._verified)

    def _verified(self, raw: bytes) -> VerifiedCommand:
        """Checked once in all, for a thousand nodes share this processor."""
        if raw not in self.checked:
            self.checked[raw] = verify_command(NET.network, raw, check_signature)
        return self.checked[raw]

    def _on_effect(self, peer: Peer, effect: Any) -> None:
        if isinstance(effect, BansChanged):
            self.in_force_at[peer.node] = {name: self.world.now for name, until in effect.until.items() if until} | {
                name: at for name, at in self.in_force_at.get(peer.node, {}).items() if effect.until.get(name)
            }
            return
        super()._on_effect(peer, effect)

    def signed_command(
        self, target: bytes, until: int, holder: str = "root", chain: tuple[bytes, ...] = ADMIN
    ) -> bytes:
        wall_ms = WALL_MS + self.world.now // MILLISECOND
        return sign_command(key_of(holder).sign, chain, NET.network, ban_terms(target, until, ""), wall_ms, self.draw)

    def ban(self, at: str, target: bytes = THIEF, hours: int = 1) -> None:
        until = NET.now + hours * HOUR if hours else 0
        answer = self.outcome(at, SetBan(target.hex(), until), self.signed_command(target, until))
        assert isinstance(answer, Replied), answer

    def outcome(self, at: str, command: SetBan, signed_command: bytes, who: str = "root") -> Replied | RefusedRequest:
        self._request += 1
        request, principal = self._request, Principal("admin", "", public_of(who))
        self.world.inject(self.by_name[at], UserRequest(request, command, "", principal, signed_command))
        assert self.world.run_until(lambda: request in self.answers, 20 * SECOND, MILLISECOND)
        return self.answers[request]

    def knowing(self, target: bytes = THIEF) -> int:
        return sum(target in known for node, known in self.in_force_at.items() if node in self.world.nodes)


def test_a_ban_and_its_end_reach_all_forty_nodes() -> None:
    mesh = Banning(1, 40).build()
    began = mesh.world.now
    mesh.ban("a7")
    assert mesh.world.run_until(lambda: mesh.knowing() == 40, 10 * SECOND)
    assert max(known[THIEF] for known in mesh.in_force_at.values()) - began < 10 * SECOND
    mesh.world.run_for(SECOND)
    mesh.ban("a30", hours=0)
    assert mesh.world.run_until(lambda: mesh.knowing() == 0, 10 * SECOND)


def test_bans_lost_in_transit_are_learnt_by_digest_comparison() -> None:
    mesh = Banning(2, 12, network=NetworkConfig(loss=0.0)).build()
    sleeper = mesh.node("a5")
    mesh.world.crash(sleeper)
    mesh.world.run_for(10 * SECOND)
    mesh.ban("a1")
    mesh.ban("a2", public_of("other"))
    assert mesh.world.run_until(lambda: mesh.knowing() == 11, 10 * SECOND)
    mesh.in_force_at.pop(sleeper, None)
    mesh.start(sleeper, mesh.node("a1"))
    assert mesh.world.run_until(lambda: len(mesh.in_force_at.get(sleeper, {})) == 2, 30 * SECOND)


def test_more_bans_than_a_message_holds_reach_all_nodes_under_loss() -> None:
    mesh = Banning(3, 10, network=NetworkConfig(loss=0.01)).build()
    for number in range(70):  # more than one message holds
        mesh.ban("a1", public_of(f"thief {number}"))
    last = public_of("thief 69")
    assert mesh.world.run_until(lambda: mesh.knowing(last) == 10, 30 * SECOND)

    def complete() -> bool:
        return all(len(known) == 70 for known in mesh.in_force_at.values()) and len(mesh.in_force_at) == 10

    assert mesh.world.run_until(complete, 200 * SECOND)


def test_only_an_admin_bans_and_never_itself() -> None:
    mesh = Banning(4, 4).build()
    until = NET.now + HOUR
    for holder, chain, target, why in (
        ("ann", NET.member("ann", "submitter"), THIEF, "Only an admin may ban"),
        ("root", ADMIN, public_of("root"), "you could not revoke such a ban"),
    ):
        signed_command = mesh.signed_command(target, until, holder, chain)
        answer = mesh.outcome("a1", SetBan(target.hex(), until), signed_command, holder)
        assert isinstance(answer, RefusedRequest)
        assert why in answer.text
        assert answer.reason == "command"
    answer = mesh.outcome("a1", SetBan(THIEF.hex(), until), mesh.signed_command(public_of("friend"), until))
    assert isinstance(answer, RefusedRequest)
    assert "the signed command differs from this ban" in answer.text
    answer = mesh.outcome("a1", SetBan("thief", until), mesh.signed_command(THIEF, until))
    assert isinstance(answer, RefusedRequest)
    assert "64 hex digits" in answer.text
    assert mesh.knowing() == 0


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_ban_of_one_of_a_thousand_is_in_force_everywhere_within_ten_seconds() -> None:
    mesh = Banning(5, 1_000, network=NetworkConfig(loss=0.01))
    assert mesh.join_all(interval_ns=20 * MILLISECOND)
    mesh.world.run_for(3 * SECOND)
    began = mesh.world.now
    mesh.ban("a500")
    assert mesh.world.run_until(lambda: mesh.knowing() == 1_000, 60 * SECOND)
    took = sorted((known[THIEF] - began) / MILLISECOND for known in mesh.in_force_at.values())
    print(f"in force at 1,000 nodes: p50 {took[500]:.1f} ms, p99 {took[990]:.1f} ms, last {took[-1]:.1f} ms")
    assert took[990] <= 10_000
