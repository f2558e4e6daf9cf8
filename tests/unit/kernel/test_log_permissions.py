"""A7 for logs: every role × scope × whose log: exactly the table that stands here, written by hand."""

import itertools

import pytest

from agiledart_kernel.permissions import REFUSALS, LogOwnership, Principal, log_read_refusal, log_write_refusal

ME, OTHER = b"m" * 32, b"o" * 32

WHOSE = {
    "own": LogOwnership("routes", "taxi", ME),
    "shared": LogOwnership("routes", "taxi", OTHER, (ME,)),
    "other's": LogOwnership("routes", "taxi", OTHER),
    "nobody's": LogOwnership("routes", "taxi"),
}
SCOPES = ("", "sink:routes", "app:taxi", "sink:else", "app:else", "app:routes", "sink:taxi")

NAMED = frozenset(itertools.product(("sink:routes", "app:taxi"), WHOSE))
EVERY = frozenset({*NAMED, *itertools.product(("",), WHOSE)})
READ: dict[str, frozenset[tuple[str, str]]] = {
    "admin": EVERY,
    "agent": EVERY,
    "reader": EVERY,
    "submitter": frozenset({*NAMED, ("", "own"), ("", "shared"), ("", "nobody's")}),
}
"""Role → (scope, whose log) for which its holder reads the rows; everything else is refused."""


@pytest.mark.parametrize("role", ["admin", "agent", "submitter", "reader", "executor", ""])
def test_log_readers_are_authorised(role: str) -> None:
    for scope, (whose, log) in itertools.product(SCOPES, WHOSE.items()):
        expected = (scope, whose) in READ.get(role, frozenset())
        why = log_read_refusal(Principal(role, scope, ME), log)
        assert (why == "") is expected, (role, scope, whose, why)
        assert (why in REFUSALS) is not expected


@pytest.mark.parametrize(
    ("log", "application", "owner", "may", "scoped"),
    [
        (WHOSE["own"], "taxi", ME, True, True),
        (WHOSE["own"], "another of mine", ME, True, True),
        (WHOSE["own"], "theirs, shared with me", OTHER, True, True),  # a run of mine, whoever owns its application
        (WHOSE["shared"], "taxi", OTHER, True, True),  # a run of the application that was shared with me
        (WHOSE["shared"], "mine", ME, False, False),  # the application is shared, not its log for other ones
        (WHOSE["other's"], "taxi", ME, False, False),  # their name was free again
        (WHOSE["other's"], "mine", ME, False, False),
        (
            WHOSE["nobody's"],
            "taxi",
            ME,
            False,
            True,
        ),  # the name may have been free: an admin has not said that it is theirs
        (WHOSE["nobody's"], "mine", ME, False, False),
    ],
)
def test_log_writers_are_authorised(log: LogOwnership, application: str, owner: bytes, may: bool, scoped: bool) -> None:
    assert log_write_refusal(Principal("submitter", "", ME), application, owner, log) == ("" if may else "owner")
    assert log_write_refusal(Principal("submitter", f"app:{application}", ME), application, owner, log) == (
        "" if scoped else "owner"
    )
    assert log_write_refusal(Principal("admin", "", b"a" * 32), application, owner, log) == ""
    by_agent = log_write_refusal(Principal("agent", "", b"a" * 32), application, owner, log)
    assert by_agent == ("" if log.owner and log.owner == owner else "owner")  # an agent's key owns no application
