"""Every role at every service (oracle A5 of the admission spec): exactly the table, nothing more."""

import pytest

from agiledart_kernel.errors import Refused
from agiledart_kernel.grants import ROLES, Grant, Role, verify_chain
from agiledart_kernel.services import ROLES_BY_SERVICE, check_service_access
from agiledart_transport.certificates import check_signature
from tests.keys import NOW, Authority, public_of

NET = Authority()

MAY_DIAL = {
    ("overlay", "agent"),
    ("data", "agent"), ("data", "executor"),
    ("control", "admin"), ("control", "provisioner"), ("control", "submitter"), ("control", "reader"),
    ("sink_log", "admin"), ("sink_log", "agent"), ("sink_log", "submitter"), ("sink_log", "reader"), ("fragments", "agent"),
    ("feed", "admin"), ("feed", "submitter"), ("feed", "writer"),
    ("relay", "agent"), ("relay", "executor"),
}  # fmt: skip
MAY_SERVE = {
    ("overlay", "agent"), ("data", "agent"), ("data", "executor"), ("control", "agent"), ("sink_log", "agent"),
    ("feed", "agent"), ("fragments", "agent"), ("relay", "agent"),
}  # fmt: skip


def grant_of(role: Role, scope: str = "") -> Grant:
    name, chain = NET.holder(role, scope=scope)
    return verify_chain(NET.network, chain, public_of(name), NOW, check_signature)


def may_enter(service: str, grant: Grant, own: Grant | None = None, *, serves: bool = False) -> bool:
    try:
        check_service_access(service, grant, own, serves=serves)
    except Refused:
        return False
    return True


@pytest.mark.parametrize("service", ROLES_BY_SERVICE)
@pytest.mark.parametrize("role", ROLES)
def test_roles_enter_services_by_the_table(service: str, role: Role) -> None:
    assert may_enter(service, grant_of(role)) == ((service, role) in MAY_DIAL)


@pytest.mark.parametrize("service", ROLES_BY_SERVICE)
@pytest.mark.parametrize("role", ROLES)
def test_roles_answer_at_services_by_the_table(service: str, role: Role) -> None:
    assert may_enter(service, grant_of(role), serves=True) == ((service, role) in MAY_SERVE)


@pytest.mark.parametrize("role", ROLES)
def test_an_unknown_service_admits_no_role(role: Role) -> None:
    with pytest.raises(Refused) as refusal:
        check_service_access("metrics", grant_of(role))
    assert refusal.value.reason == "service"


def test_executors_connect_only_within_their_application() -> None:
    taxi, weather = grant_of("executor", "app:taxi"), grant_of("executor", "app:weather")
    assert may_enter("data", taxi, own=taxi)
    assert may_enter("data", taxi, own=grant_of("agent"))
    assert may_enter("data", grant_of("agent"), own=taxi)
    with pytest.raises(Refused) as refusal:
        check_service_access("data", taxi, own=weather)
    assert refusal.value.reason == "scope"


def test_an_agent_with_a_scope_in_its_grant_is_no_agent_of_the_ring() -> None:
    with pytest.raises(Refused) as refusal:
        check_service_access("overlay", grant_of("agent", "app:taxi"))
    assert refusal.value.reason == "scope"
