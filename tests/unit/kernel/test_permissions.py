"""A7: every role × scope × verb × (own, shared, other's, no) application: exactly the table that stands here, written by hand."""

import itertools

import pytest

from agiledart_kernel.node_id import node_id_of_key
from agiledart_kernel.permissions import (
    REFUSALS,
    VERBS,
    ApplicationOwnership,
    FeedOwnership,
    LogOwnership,
    Principal,
    VerbSubject,
    feed_read_refusal,
    feed_write_refusal,
    gate_token_refusal,
    log_write_refusal,
    may,
    own_node_refusal,
    refusal,
    refusal_before_lookup,
)
from agiledart_node.wire.commands import VERB_BY_COMMAND, Command

ME, OTHER = b"m" * 32, b"o" * 32

WHOSE = {
    "own": ApplicationOwnership("taxi", ME),
    "shared": ApplicationOwnership("taxi", OTHER, shared=(ME,)),
    "other's": ApplicationOwnership("taxi", OTHER),
    "nobody's": ApplicationOwnership("taxi", b""),
    "new": ApplicationOwnership("taxi", exists=False),
}
SCOPES = {"": "all", "app:taxi": "it", "app:else": "else", "sink:taxi": "else"}

ALL = frozenset(itertools.product(("all", "it"), WHOSE))
OF_ONES_OWN = frozenset({("all", "own"), ("all", "shared"), ("all", "new"), *itertools.product(("it",), WHOSE)})
OWNERS = frozenset({("all", "own"), ("all", "new"), ("it", "own"), ("it", "new")})

ABOUT_APPLICATIONS: dict[tuple[str, str], frozenset[tuple[str, str]]] = {
    ("admin", "submit"): ALL, ("submitter", "submit"): OF_ONES_OWN,
    ("admin", "stop"): ALL, ("submitter", "stop"): OF_ONES_OWN,
    ("admin", "checkpoint"): ALL, ("submitter", "checkpoint"): OF_ONES_OWN,
    ("admin", "export"): ALL, ("submitter", "export"): OF_ONES_OWN,
    ("admin", "recover"): ALL,
    ("admin", "scale"): ALL, ("submitter", "scale"): OF_ONES_OWN,
    ("admin", "move"): ALL, ("submitter", "move"): OF_ONES_OWN,
    ("admin", "model"): ALL, ("submitter", "model"): OF_ONES_OWN,
    ("admin", "tap"): ALL, ("submitter", "tap"): OF_ONES_OWN,
    ("admin", "share"): ALL, ("submitter", "share"): OWNERS,
    ("admin", "forget"): ALL, ("submitter", "forget"): OWNERS,
    ("admin", "secret"): ALL, ("submitter", "secret"): OF_ONES_OWN,
    ("provisioner", "status"): ALL,
    ("admin", "status"): ALL, ("submitter", "status"): ALL, ("reader", "status"): ALL, ("agent", "status"): ALL,
    ("admin", "logs"): ALL, ("submitter", "logs"): ALL, ("reader", "logs"): ALL,
    ("admin", "explain"): ALL, ("submitter", "explain"): ALL, ("reader", "explain"): ALL, ("provisioner", "explain"): ALL,
}  # fmt: skip
"""(role, verb) → (what the scope covers, whose it is) for which it may; everything else is refused."""

READERS = ("admin", "submitter", "reader")

ABOUT_ALL = {
    **{(role, "list"): ("", "app:taxi", "app:else", "sink:taxi") for role in (*READERS, "agent", "provisioner")},
    **{(role, "renew"): ("", "app:taxi", "app:else", "sink:taxi") for role in (*READERS, "agent", "provisioner")},
    **{(role, "secrets"): ("", "app:taxi", "app:else", "sink:taxi") for role in ("admin", "submitter")},
    **{
        (role, verb): ("",)
        for role in ("admin", "submitter", "reader")
        for verb in ("nodes", "route", "info", "bans", "feeds", "provisioning")
    },
    ("submitter", "feed"): ("",),
    **{("agent", verb): ("",) for verb in ("nodes", "route", "info", "bans", "leave", "drain", "provisioning")},
    **{
        ("provisioner", verb): ("",)
        for verb in ("nodes", "route", "info", "bans", "provisioning", "lease", "tokens", "create token", "drain")
    },
    **{
        ("admin", verb): ("",)
        for verb in ("create token", "leave", "drain", "ban", "audit", "tokens", "feed", "provision", "lease")
    },
}
"""(role, verb) → scopes with which it may."""

ROLES = ("admin", "agent", "submitter", "reader", "writer", "provisioner", "executor", "")
UNKNOWN = "shell"
APPLICATION_VERBS = [verb for verb, row in VERBS.items() if row.about is VerbSubject.APPLICATION]


@pytest.mark.parametrize("verb", [*APPLICATION_VERBS, UNKNOWN])
@pytest.mark.parametrize("role", ROLES)
def test_commands_about_one_application_are_authorised(role: str, verb: str) -> None:
    for (scope, covers), (whose, application) in itertools.product(SCOPES.items(), WHOSE.items()):
        expected = (covers, whose) in ABOUT_APPLICATIONS.get((role, verb), frozenset())
        principal = Principal(role, scope, ME)
        assert may(principal, verb, application) is expected, (role, scope, verb, whose)
        assert (refusal(principal, verb, application) in REFUSALS) is not expected


@pytest.mark.parametrize("verb", [*(verb for verb in VERBS if verb not in APPLICATION_VERBS), UNKNOWN])
@pytest.mark.parametrize("role", ROLES)
def test_commands_about_all_applications_are_authorised(role: str, verb: str) -> None:
    for scope in SCOPES:
        assert may(Principal(role, scope, ME), verb) is (scope in ABOUT_ALL.get((role, verb), ())), (role, scope, verb)


def test_the_permission_table_covers_every_verb_and_command() -> None:
    assert {verb for _, verb in (*ABOUT_APPLICATIONS, *ABOUT_ALL)} == set(VERBS)
    commands = set(Command.__args__)
    assert set(VERB_BY_COMMAND) == commands
    assert set(VERB_BY_COMMAND.values()) == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_with_a_missing_or_surplus_application_is_refused(verb: str) -> None:
    application = None if VERBS[verb].about is VerbSubject.APPLICATION else WHOSE["own"]
    assert refusal(Principal("admin", "", ME), verb, application) == "verb"


@pytest.mark.parametrize("verb", APPLICATION_VERBS)
@pytest.mark.parametrize("role", ROLES)
def test_a_requester_without_the_role_to_ask_is_refused(role: str, verb: str) -> None:
    """A request refused before the record is read is refused after it, with the same word."""
    for scope, application in itertools.product(SCOPES, WHOSE.values()):
        principal = Principal(role, scope, ME)
        if unseen := refusal_before_lookup(principal, verb, application.name):
            assert refusal(principal, verb, application) == unseen


def test_an_empty_key_owns_nothing() -> None:
    """Applications older than owners have an empty one; so does an anonymous requester."""
    assert refusal(Principal("submitter", "", b""), "stop", ApplicationOwnership("taxi", b"")) == "owner"
    assert refusal(Principal(), "status", ApplicationOwnership("taxi", b"")) == "role"


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("scope", ["", "feed:usual", "feed:other", "app:usual", "sink:usual"])
def test_writers_of_feeds_are_authorised_by_role_scope_and_owner(role: str, scope: str) -> None:
    for owner in (ME, OTHER, b""):
        expected = (role in ("admin", "writer") or (role == "submitter" and owner == ME)) and scope in (
            "",
            "feed:usual",
        )
        assert (not feed_write_refusal(Principal(role, scope, ME), FeedOwnership("usual", owner))) is expected


def test_an_application_reads_feeds_of_its_owner_and_open_ones() -> None:
    assert [feed_read_refusal(ME, FeedOwnership("usual", owner)) for owner in (ME, b"", OTHER)] == ["", "", "owner"]


@pytest.mark.parametrize("role", ROLES)
def test_no_run_writes_to_the_log_of_a_feed(role: str) -> None:
    assert log_write_refusal(Principal(role, "", ME), "taxi", ME, LogOwnership("usual", "feed:usual", ME)) == "owner"


def test_a_provisioner_makes_tokens_for_single_hosts_only() -> None:
    gate, admin = Principal("provisioner", "", ME), Principal("admin", "", ME)
    assert gate_token_refusal(gate, "agent", 1, 900, "") == ""
    for role, uses, seconds, operator in (
        ("admin", 1, 900, ""),
        ("submitter", 1, 900, ""),
        ("provisioner", 1, 900, ""),
        ("agent", 2, 900, ""),
        ("agent", 1, 901, ""),
        ("agent", 1, 900, "submitter"),
    ):
        assert gate_token_refusal(gate, role, uses, seconds, operator) == "role"
        assert gate_token_refusal(admin, role, uses, seconds, operator) == ""


def test_a_provisioner_empties_only_nodes_that_it_has_leased() -> None:
    gate, node = Principal("provisioner", "", ME), node_id_of_key(OTHER)
    assert own_node_refusal(gate, node, ME) == ""
    assert own_node_refusal(gate, node, OTHER) == "role"
    assert own_node_refusal(gate, node) == "role"
    assert own_node_refusal(Principal("provisioner"), node) == "role", "no key is no holder"
