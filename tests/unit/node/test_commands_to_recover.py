"""That a run goes on without the majority of its voters is believed with an admin's order for it, given since the last."""

import random
from collections.abc import Iterable
from typing import Any

import pytest

from agiledart_kernel.instants import Instant
from agiledart_kernel.signed_commands import sign_command, verify_command
from agiledart_node.records.command_verifier import CommandVerifier, command_terms
from agiledart_node.records.signatures import Signatures
from agiledart_node.wire.checkpoint_commands import RecoverRun
from agiledart_node.wire.commands import Command, Stop
from agiledart_recovery.wire.names import RunId
from agiledart_transport.certificates import check_signature
from tests.keys import Authority, key_of

WALL_MS = 1_700_000_000_000
NET = Authority(now=WALL_MS // 1_000)
DRAW = random.Random(1).randbytes
RUN = RunId("taxi", 1)
DONE = RecoverRun("taxi", lost_voters=("a4",))


class Clock:
    """All of a desk that judging takes."""

    common_ms = WALL_MS
    now = Instant(0)


def verifier(verify: Any = lambda raw: verify_command(NET.network, raw, check_signature)) -> CommandVerifier:
    return CommandVerifier(Clock(), verify, Signatures(verify))  # type: ignore[arg-type]


def signed(command: Command, holder: str = "root", role: Any = "admin", at: int = 0) -> bytes:
    terms = command_terms(command)
    assert terms is not None
    return sign_command(key_of(holder).sign, NET.member(holder, role), NET.network, terms, WALL_MS + at, DRAW)


GOOD = signed(DONE)
FORGED: Iterable[tuple[str, bytes]] = (
    ("none", b""),
    ("no order", b"recover taxi"),
    ("a submitter's", signed(DONE, "ann", "submitter")),
    ("an observer's", signed(DONE, "eve", "observer")),
    ("for another one", signed(RecoverRun("bus", lost_voters=("a4",)))),
    ("to stop it", signed(Stop("taxi"))),
    ("to look only", signed(RecoverRun("taxi", lost_voters=("a4",), check=True))),
    ("a bit changed", GOOD[:40] + bytes((GOOD[40] ^ 1,)) + GOOD[41:]),
)


@pytest.mark.parametrize(("how", "signed_command"), FORGED, ids=[how for how, _ in FORGED])
def test_a_command_without_an_admins_signature_begins_no_configuration(how: str, signed_command: bytes) -> None:
    assert not verifier().is_recovery(RUN, signed_command, b"")


def test_an_admins_command_of_any_age_begins_one_configuration() -> None:
    judge, old, new = verifier(), signed(DONE), signed(DONE, at=3_600_000)
    assert judge.is_recovery(RUN, old, b"")
    assert judge.is_recovery(RUN, new, old)
    assert not judge.is_recovery(RUN, old, old)
    assert not judge.is_recovery(RUN, old, new)


def test_without_keys_unsigned_commands_are_accepted() -> None:
    assert verifier(None).is_recovery(RUN, b"", b"")
