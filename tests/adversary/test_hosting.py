"""Hosting and commanding are two things: an agent's key commands nothing for users, the operator of its machine does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agiledart_agent.identity.identity import Identity
from agiledart_agent.identity.operator_identity import FILE, FOUNDER_DAYS, OperatorIdentity, let_operate, operator_of
from agiledart_agent.identity.rotation import rotate_node
from agiledart_agent.identity.tokens import create_token, parse_token, redeem
from agiledart_kernel.errors import OperationFailed, Refused
from agiledart_kernel.grants import Quota, Role
from agiledart_kernel.node_id import node_id_of_key
from agiledart_kernel.permissions import Principal, own_node_refusal
from agiledart_kernel.signed_commands import verify_command
from agiledart_node.records.command_verifier import command_terms
from agiledart_node.wire.commands import Command, DrainNode, Forget, ShareApplication, Stop, Tap
from agiledart_transport.certificates import check_signature
from tests.adversary.findings import probe, twin
from tests.keys import public_of
from tests.simulation.test_forged_records import BOB, JOB, a_mesh

COMMANDS: tuple[Command, ...] = (
    JOB, Stop("mine"), Stop("mine", now=True), Forget("mine"), ShareApplication("mine", BOB.hex()), Tap("mine", "x"),
)  # fmt: skip


def outcome(mesh: Any, command: Command, role: Role, at: str = "a4") -> str:
    """Return the refusal of a command that a member of this role has signed; empty: there is none."""
    return str(mesh.outcome(at, command, mesh.signed_command(command, "pi", role), "pi"))


# ---- commands


@probe(10)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
@pytest.mark.parametrize("at", ["a1", "a4"])
def test_an_agents_key_commands_nothing_for_users(command: Command, at: str) -> None:
    """a1 lies: it forwards the command of its own key. Schedulers, hosts and coordinators refuse it."""
    mesh = a_mesh(92)
    assert outcome(mesh, command, "agent", at) != ""
    assert mesh.status("a3", "mine")["state"] == "running"
    assert mesh.status("a3", "mine")["shared"] == []


@twin(10)
def test_an_admins_key_commands() -> None:
    mesh = a_mesh(93)
    assert outcome(mesh, ShareApplication("mine", BOB.hex()), "admin") == ""
    assert outcome(mesh, Stop("mine", now=True), "admin") == ""


def test_an_agents_key_empties_its_own_node_only() -> None:
    key = public_of("pi")
    assert own_node_refusal(Principal("agent", "", key), node_id_of_key(key)) == ""
    assert own_node_refusal(Principal("agent", "", key), node_id_of_key(BOB)) == "role"
    assert own_node_refusal(Principal("admin", "", key), node_id_of_key(BOB)) == ""


def test_an_agents_key_drains_no_other_node() -> None:
    mesh = a_mesh(94)
    assert "may not drain" in outcome(mesh, DrainNode("a2"), "agent")


# ---- operators


def founder(folder: Path) -> Identity:
    """Return the identity of a node that has created a network."""
    identity = Identity.load_or_create(folder)
    identity.create_network()
    identity.keep_network()
    return identity


@pytest.fixture
def first(tmp_path: Path) -> Identity:
    return founder(tmp_path / "a1")


Joining = Callable[..., tuple[Identity, Any]]


@pytest.fixture
def joining(first: Identity, tmp_path: Path) -> Joining:
    """Return a function that joins a node by a token with these options; it returns the node and the token."""

    def join(name: str = "a2", **options: Any) -> tuple[Identity, Any]:
        now = int(first.wall_seconds())
        token = parse_token(create_token(first.issuer(), now_seconds=now, addresses=(), **options))
        identity = Identity.load_or_create(tmp_path / name)
        identity.join_network(token.network, redeem(token, identity.public_key, now), token.signed_record)
        identity.keep_network()
        return identity, token

    return join


def signer(identity: Identity, operator: OperatorIdentity) -> Principal:
    """Return the verified signer of a command at the socket."""
    terms = command_terms(Stop("mine"))
    assert terms is not None
    raw = operator.sign(terms, int(identity.wall_seconds()) * 1_000)
    verified = verify_command(identity.network, raw, check_signature)
    assert verified.grant.key == operator.principal.key
    return Principal.of(verified.grant)


def test_the_operator_of_the_founder_is_an_admin_with_a_key_of_its_own(first: Identity) -> None:
    operator = operator_of(first, None)
    assert signer(first, operator).role == "admin"
    assert operator.principal.key not in (first.public_key, first.network)
    assert operator_of(first, None).principal == operator.principal, "the next start finds it"
    assert (first.directory / FILE).stat().st_mode & 0o077 == 0


def _days_left(identity: Identity, operator: OperatorIdentity) -> float:
    assert operator.not_after is not None
    return (operator.not_after - identity.wall_seconds()) / 86_400


def test_the_founders_operator_ends_soon_after_the_authoritys_key_has_left(
    first: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, key = operator_of(first, None), operator_of(first, None).principal.key
    assert FOUNDER_DAYS - 1 < _days_left(first, operator) <= FOUNDER_DAYS
    now, past = first.wall_seconds(), (FOUNDER_DAYS - 10) * 86_400
    monkeypatch.setattr(first, "wall_seconds", lambda: now + past)
    assert _days_left(first, operator) < 11
    operator.renew()
    assert _days_left(first, operator) > FOUNDER_DAYS - 1
    assert (operator.principal.key, operator.principal.role) == (key, "admin")
    first.authority = None
    monkeypatch.setattr(first, "wall_seconds", lambda: now + 2 * past)
    operator.renew()
    assert _days_left(first, operator) < 11, "no key signs it any more"


def test_a_founder_that_was_away_for_long_keeps_its_operators_key(
    first: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, now = operator_of(first, None).principal.key, first.wall_seconds()
    monkeypatch.setattr(first, "wall_seconds", lambda: now + 2 * FOUNDER_DAYS * 86_400)
    again = operator_of(first, None)
    assert again.principal.key == key
    assert _days_left(first, again) > FOUNDER_DAYS - 1


@pytest.mark.parametrize("role", ["reader", "submitter", "admin"])
def test_a_join_token_gives_its_operator_a_role(joining: Joining, role: str) -> None:
    identity, token = joining(operator=role)
    operator = operator_of(identity, token)
    assert signer(identity, operator).role == role
    assert identity.grant().role == "agent"
    assert operator_of(identity, None).principal == operator_of(identity, token).principal == operator.principal


def test_without_an_operator_the_agents_own_key_signs(joining: Joining) -> None:
    identity, token = joining()
    assert token.operator == ()
    assert operator_of(identity, token).principal == Principal("agent", "", identity.public_key)
    assert not (identity.directory / FILE).exists()


def test_a_users_token_changes_the_rights_of_the_same_key(joining: Joining, first: Identity) -> None:
    identity, token = joining(operator="reader")
    key = operator_of(identity, token).principal.key
    now = int(first.wall_seconds())
    of_user = create_token(first.issuer(), now_seconds=now, addresses=(), role="submitter", scope="app:taxi")
    grant = let_operate(identity, parse_token(of_user))
    assert (grant.role, grant.scope, grant.key) == ("submitter", "app:taxi", key)
    assert operator_of(identity, None).principal.role == "submitter"


def test_an_agents_token_makes_no_operator_by_itself(joining: Joining) -> None:
    identity, token = joining()
    with pytest.raises(OperationFailed, match="for a new agent"):
        let_operate(identity, token)


def test_an_operator_of_another_network_is_none(joining: Joining, tmp_path: Path) -> None:
    identity, token = joining(operator="submitter")
    operator_of(identity, token)
    other = founder(tmp_path / "other")
    (other.directory / FILE).write_bytes((identity.directory / FILE).read_bytes())
    (other.directory / FILE).chmod(0o600)
    assert operator_of(other, None).principal.role == "admin"
    with pytest.raises(OperationFailed, match="of network"):
        let_operate(other, token)


def test_a_quota_binds_the_operator(joining: Joining) -> None:
    identity, token = joining(operator="submitter", quota=Quota(disk_mb=5))
    assert operator_of(identity, token).principal.quota == Quota(disk_mb=5)
    assert identity.grant().quota == Quota()


@pytest.mark.parametrize(("role", "operator"), [("submitter", "reader"), ("agent", "agent"), ("agent", "executor")])
def test_no_token_is_made_for_other_operators(first: Identity, role: Any, operator: str) -> None:
    with pytest.raises(OperationFailed, match="operator of a new agent"):
        create_token(first.issuer(), now_seconds=0, addresses=(), role=role, operator=operator)


def test_a_node_with_another_key_has_another_operator(first: Identity) -> None:
    before = operator_of(first, None).principal
    first.keep_network()
    first.close()
    rotated = rotate_node(first.directory, None)
    after = operator_of(Identity.read(first.directory), None).principal
    assert (rotated.operator, after.role) == (before.key, "admin")
    assert after.key != before.key


def test_the_operators_chain_is_no_agents(joining: Joining) -> None:
    identity, token = joining(operator="submitter")
    operator = operator_of(identity, token)
    with pytest.raises((Refused, OperationFailed)):
        identity.join_network(identity.network, operator.chain)
