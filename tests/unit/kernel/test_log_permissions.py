"""A7 for logs: every role × scope × whose log: exactly the table that stands here, written by hand."""

import itertools

import pytest

from agiledart_kernel.permissions import REFUSALS, Asker, Log, reading_refusal, writing_refusal

ME, OTHER = b"m" * 32, b"o" * 32

WHOSE = {
    "own": Log("routes", "taxi", ME),
    "shared": Log("routes", "taxi", OTHER, (ME,)),
    "other's": Log("routes", "taxi", OTHER),
    "nobody's": Log("routes", "taxi"),
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
def test_who_reads_a_log(role: str) -> None:
    for scope, (whose, log) in itertools.product(SCOPES, WHOSE.items()):
        expected = (scope, whose) in READ.get(role, frozenset())
        why = reading_refusal(Asker(role, scope, ME), log)
        assert (why == "") is expected, (role, scope, whose, why)
        assert (why in REFUSALS) is not expected


@pytest.mark.parametrize(
    ("log", "application", "owner", "may", "scoped"),
    [
        (WHOSE["own"], "taxi", ME, True, True),
        (WHOSE["own"], "another of mine", ME, True, True),
        (WHOSE["own"], "theirs, shared with me", OTHER, True, True),  # a run of mine, whoever owns its application
        (WHOSE["shared"], "taxi", OTHER, True, True),  # a run of the application that was shared with me
        (WHOSE["shared"], "mine", ME, False, False),  # what is shared is the application, not its log for other ones
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
def test_who_writes_a_log(log: Log, application: str, owner: bytes, may: bool, scoped: bool) -> None:
    assert writing_refusal(Asker("submitter", "", ME), application, owner, log) == ("" if may else "owner")
    assert writing_refusal(Asker("submitter", f"app:{application}", ME), application, owner, log) == (
        "" if scoped else "owner"
    )
    for role in ("admin", "agent"):
        assert writing_refusal(Asker(role, "", b"a" * 32), application, owner, log) == ""
