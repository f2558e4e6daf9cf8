"""Lease of a leased node: it works after its first renewal, obeys one gate, and ends itself when no gate renews it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from agiledart_kernel.instants import SECOND, Duration
from agiledart_kernel.randomness import RandomStream
from agiledart_node.context.config import NodeConfig
from agiledart_node.context.pending_requests import PendingRequests
from agiledart_node.draining.node_drain import NodeDrain
from agiledart_node.gates.host_lease import LeaseKeeper
from agiledart_node.wire.effects import EndAgent
from agiledart_node.wire.lease_messages import HostLease, LeaseStatus, LeaseTerms, RenewHostLease, RequestLease
from tests.unit.node import test_change_plans as plans

TERMS = LeaseTerms("gw-1", "gw", "h1", 120 * SECOND, 60 * SECOND, 30 * SECOND)


class Leased:
    """A leased node without a ring."""

    def __init__(self, terms: LeaseTerms | None = TERMS) -> None:
        self.sent: list[Any] = []
        self.effects: list[Any] = []
        self.context = cast(
            Any,
            SimpleNamespace(
                me=plans.PI[2], config=NodeConfig(lease=terms), now=0, is_draining=False, is_leaving=False,
                requests=PendingRequests(RandomStream(1), Duration(1), 8), send=lambda peer, message: self.sent.append(message),
                emit=self.effects.append, drop=lambda reason: None,
            ),
        )  # fmt: skip
        hosting = cast(Any, SimpleNamespace(table={}, on_capacity_changed=lambda: None))
        self.drain = NodeDrain(self.context, cast(Any, None), hosting, cast(Any, None), cast(Any, None))
        verifier = cast(Any, SimpleNamespace(requires_signatures=False))
        self.keeper = LeaseKeeper(self.context, self.drain, verifier)

    def at(self, seconds: int) -> "Leased":
        self.context.now = seconds * SECOND
        self.keeper.patrol()
        return self

    def renew(self, gate: str, lease_id: str = "gw-1") -> str:
        """Renew the lease; return why not."""
        command = RenewHostLease("pi2", lease_id, gate, b"{}")
        with pytest.raises(StopIteration):
            self.keeper.asked(plans.PI[3], RequestLease(1, command)).send(None)
        answer = self.sent[-1]
        assert isinstance(answer, LeaseStatus)
        return answer.refusal

    @property
    def lease(self) -> HostLease:
        lease = self.keeper.lease()
        assert lease is not None
        return lease


def test_a_node_without_a_lease_works_from_the_start() -> None:
    node = Leased(None)
    assert not node.context.is_draining
    assert node.keeper.lease() is None
    assert "shows no lease, not gw-1" in node.renew("gw")
    assert node.at(10**6).effects == []


def test_a_leased_node_takes_no_work_before_its_first_renewal() -> None:
    node = Leased()
    assert node.context.is_draining
    assert (node.lease.is_accepted, node.lease.is_empty) == (False, True)
    assert node.renew("gw") == ""
    assert not node.context.is_draining
    assert (node.lease.is_accepted, node.lease.is_empty, node.lease.entry) == (True, False, b"{}")


def test_a_renewal_of_another_lease_is_refused() -> None:
    node = Leased()
    assert "shows gw-1, not gw-2" in node.renew("gw", "gw-2")
    assert node.context.is_draining


def test_another_gate_adopts_the_node_only_when_its_own_is_silent() -> None:
    node = Leased().at(0)
    assert node.renew("gw") == ""
    assert "gw has renewed gw-1 29 s ago" in node.at(29).renew("other")
    assert node.at(30).renew("other") == ""
    assert node.lease.gate == "other"
    assert "other has renewed gw-1 1 s ago" in node.at(31).renew("gw")


def test_a_node_that_no_gate_renews_ends_itself_a_unit_and_the_grace_later() -> None:
    node = Leased().at(0)
    node.renew("gw")
    node.at(100).renew("gw")
    assert node.at(100 + 179).effects == []
    assert node.at(100 + 180).effects == [EndAgent()]
    assert "ends: its lease was not renewed in time" in node.renew("gw")
    assert node.at(1_000).effects == [EndAgent()], "it ends once"


def test_a_node_that_no_gate_ever_renewed_ends_itself_as_well() -> None:
    node = Leased().at(5)
    assert node.at(184).effects == []
    assert node.at(185).effects == [EndAgent()]
