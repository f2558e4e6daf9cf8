"""Signed commands: only signed contents, by the named user, for this network, at about this time."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_kernel.errors import Refused
from agiledart_kernel.signed_commands import (
    MAX_SIGNED_COMMAND_BYTES,
    CommandTerms,
    check_fresh,
    content_hash,
    parse_signed_command,
    sign_command,
    sorted_arguments,
    verify_command,
)
from agiledart_transport.certificates import check_signature
from tests.keys import HOUR, NOW, Authority, key_of, public_of

NET = Authority()
TERMS = CommandTerms(
    "submit", "taxi", (content_hash(b"graph"), content_hash(b"code")), sorted_arguments((("executors", "2"),))
)
DRAW = random.Random(7).randbytes


def signed(name: str = "ann", role: Any = "submitter", at: int = NOW, network: Authority = NET, **more: Any) -> bytes:
    chain = network.member(name, role, **more)
    return sign_command(key_of(name).sign, chain, network.network, TERMS, at * 1_000, DRAW)


def refused(raw: bytes, banned: tuple[bytes, ...] = ()) -> str:
    with pytest.raises(Refused) as caught:
        verify_command(NET.network, raw, check_signature, banned)
    return caught.value.reason


def test_a_command_names_its_content_and_signer() -> None:
    verified = verify_command(NET.network, signed(scope="app:taxi"), check_signature)
    assert verified.signed_command.terms == TERMS
    assert (verified.grant.role, verified.grant.scope, verified.grant.key) == (
        "submitter",
        "app:taxi",
        public_of("ann"),
    )
    assert verified.signer_label == f"submitter {public_of('ann').hex()[:16]}"
    assert TERMS.argument("executors") == "2"
    assert TERMS.argument("delivery") == ""


def test_two_equal_requests_are_two_commands() -> None:
    assert signed() != signed()


def test_a_command_is_valid_for_its_network_alone() -> None:
    other = Authority("another authority")
    assert refused(signed(network=other)) == "another network"
    chain = other.member("ann", "submitter")
    assert refused(sign_command(key_of("ann").sign, chain, NET.network, TERMS, NOW * 1_000, DRAW)) == "another network"


def test_another_users_chain_is_rejected() -> None:
    raw = sign_command(key_of("thief").sign, NET.member("ann", "submitter"), NET.network, TERMS, NOW * 1_000, DRAW)
    assert refused(raw) == "signature"


def test_the_chain_is_verified_at_signing_time_and_bans_now() -> None:
    assert verify_command(NET.network, signed(until=HOUR), check_signature)
    assert refused(signed(at=NOW + 2 * HOUR, until=HOUR)) == "expired"
    assert refused(signed(), (public_of("ann"),)) == "banned"
    assert refused(signed(), (public_of("token of ann"),)) == "banned"


def test_unsigned_oversized_and_malformed_commands_have_their_reasons() -> None:
    assert refused(b"") == "form"
    assert refused(bytes(MAX_SIGNED_COMMAND_BYTES + 1)) == "length"
    assert refused(b"\xc1") == "form"


def test_no_bit_of_a_command_can_be_changed() -> None:
    raw = signed()
    for place in range(len(raw)):
        changed = raw[:place] + bytes((raw[place] ^ (1 << place % 8),)) + raw[place + 1 :]
        with pytest.raises(Refused):
            verify_command(NET.network, changed, check_signature)


@given(st.binary(max_size=2_000))
def test_malformed_commands_raise_no_other_exception(raw: bytes) -> None:
    with pytest.raises(Refused):
        verify_command(NET.network, raw, check_signature)


@pytest.mark.parametrize(
    ("given_ago", "waited", "reason"),
    [(0, 0, ""), (290, 0, ""), (-290, 0, ""), (310, 0, "expired"), (310, 60, ""), (-310, 0, "not yet valid")],
)
def test_freshness_is_checked(given_ago: int, waited: int, reason: str) -> None:
    signed_command = parse_signed_command(signed(at=NOW - given_ago))
    if not reason:
        check_fresh(signed_command, NOW * 1_000, waited * 1_000)
        return
    with pytest.raises(Refused) as caught:
        check_fresh(signed_command, NOW * 1_000, waited * 1_000)
    assert caught.value.reason == reason
    check_fresh(signed_command, 0)  # the time is unknown


def test_an_unknown_field_is_refused() -> None:
    body = msgspec.msgpack.decode(msgspec.msgpack.decode(signed())[0])
    altered = msgspec.msgpack.encode([*body, "more"])
    parts = msgspec.msgpack.decode(signed())
    assert refused(msgspec.msgpack.encode([altered, parts[1], parts[2]])) == "form"
