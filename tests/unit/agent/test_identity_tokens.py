"""Join tokens: issued with the right to, redeemed by their bearers, silent about their secret."""

import base64
from pathlib import Path
from random import Random

import pytest

from agiledart_agent.identity.identity import Identity, Issuer
from agiledart_agent.identity.tokens import PREFIX, create_token, describe, parse_token, read_token, redeem
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.grants import Quota, Role, link_hash, verify_chain
from agiledart_transport.certificates import check_signature
from tests.keys import HOUR, NOW, Authority, key_of, public_of

DAY = 24 * HOUR
NET = Authority()
AUTHORITY = Issuer(NET.network, key_of("authority").sign, NET.network, ())
ADMIN_CHAIN = NET.link("authority", (), "boss", "act", "admin", until=99 * DAY, depth=1)
ADMIN = Issuer(NET.network, key_of("boss").sign, public_of("boss"), ADMIN_CHAIN)

TEXT = create_token(AUTHORITY, now_seconds=NOW, addresses=["192.0.2.1:9464", "pi2:9464"])


def test_a_token_makes_its_bearer_a_member() -> None:
    token = parse_token(TEXT)
    chain = redeem(token, public_of("pi"), NOW + 5)
    grant = verify_chain(NET.network, chain, public_of("pi"), NOW + 5, check_signature)
    assert (grant.role, grant.scope) == ("agent", "")
    assert grant.not_after == NOW + 5 + 365 * DAY
    assert grant.invitation == token.record.token == link_hash(token.chain[0])
    assert token.addresses == ("192.0.2.1:9464", "pi2:9464")


def test_membership_outlasts_the_token_but_not_the_invitation() -> None:
    token = parse_token(create_token(AUTHORITY, now_seconds=NOW, addresses=[], expires=HOUR, member_for=10 * HOUR))
    late = verify_chain(NET.network, redeem(token, public_of("pi"), NOW + HOUR), public_of("pi"), NOW + HOUR,
                        check_signature)  # fmt: skip
    assert late.not_after == NOW + 11 * HOUR
    early = verify_chain(NET.network, redeem(token, public_of("pi"), NOW), public_of("pi"), NOW, check_signature)
    assert early.not_after == NOW + 10 * HOUR


def test_an_admins_token_ends_with_the_admins_own_grant() -> None:
    token = parse_token(create_token(ADMIN, now_seconds=NOW, addresses=[]))
    grant = verify_chain(NET.network, redeem(token, public_of("pi"), NOW), public_of("pi"), NOW, check_signature)
    assert grant.not_after == NOW + 99 * DAY
    assert describe(token, NOW).issued_by == f"admin {public_of('boss').hex()[:16]}"


@pytest.mark.parametrize(
    ("role", "scope"),
    [("agent", ""), ("submitter", ""), ("submitter", "app:taxi"), ("reader", "sink:top"), ("admin", "")],
)
def test_roles_and_scopes_are_granted(role: Role, scope: str) -> None:
    token = parse_token(create_token(AUTHORITY, now_seconds=NOW, addresses=[], role=role, scope=scope))
    grant = verify_chain(NET.network, redeem(token, public_of("x"), NOW), public_of("x"), NOW, check_signature)
    assert (grant.role, grant.scope) == (role, scope)


def test_an_expired_token_admits_no_node_and_is_reported() -> None:
    token = parse_token(TEXT)
    assert redeem(token, public_of("pi"), NOW + DAY)
    with pytest.raises(OperationFailed) as error:
        redeem(token, public_of("pi"), NOW + DAY + 2 * HOUR)
    assert "expired 2 h ago" in str(error.value)
    assert "agiledart token create" in str(error.value)
    assert describe(token, NOW + 2 * DAY).is_expired
    assert not describe(token, NOW).is_expired


def test_a_token_from_the_future_blames_the_clock() -> None:
    with pytest.raises(OperationFailed, match="clock"):
        redeem(parse_token(TEXT), public_of("pi"), NOW - DAY)


def test_the_description_has_everything_but_the_secret() -> None:
    token = parse_token(TEXT)
    shown = describe(token, NOW)
    assert (shown.role, shown.uses, shown.join_before, shown.member_for) == ("agent", 20, NOW + DAY, 365 * DAY)
    assert shown.network == NET.network.hex()
    assert shown.issued_by == "authority"
    for text in (repr(token), str(token), f"{token}", repr(shown)):
        assert token.secret.hex() not in text
        assert TEXT[len(PREFIX) : len(PREFIX) + 40] not in text
        assert repr(token.secret) not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"uses": 0}, "1 to 10,000 uses"), ({"uses": 10_001}, "1 to 10,000 uses"), ({"expires": 0}, "last for some time"),
        ({"member_for": -1}, "last for some time"), ({"role": "executor"}, "from their agent"),
        ({"scope": "app:x"}, "no scope"), ({"role": "reader", "scope": "everything"}, "form"),
        ({"role": "reader", "scope": "app:" + "x" * 200}, "form"),
    ],
)  # fmt: skip
def test_impossible_tokens_are_explained(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(OperationFailed, match=message):
        create_token(AUTHORITY, now_seconds=NOW, addresses=[], **arguments)  # type: ignore[arg-type]


def test_an_expired_admin_makes_no_tokens() -> None:
    with pytest.raises(OperationFailed, match="expired"):
        create_token(ADMIN, now_seconds=NOW + 100 * DAY, addresses=[])


@pytest.mark.parametrize("text", ["", "hello", "adart", "ADART2QQ", "12D3KooW"])
def test_text_that_is_no_token_is_reported(text: str) -> None:
    with pytest.raises(OperationFailed, match="That is not a join token"):
        parse_token(text)


def test_a_token_survives_case_and_space() -> None:
    assert parse_token(f"  {TEXT.upper()}\n").chain == parse_token(TEXT).chain


def test_any_damage_is_detected_and_not_echoed() -> None:
    draw = Random(3)
    for _ in range(300):
        at = draw.randrange(len(PREFIX), len(TEXT))
        changed = draw.choice("abcdefghijklmnopqrstuvwxyz234567!")
        kind = draw.choice(["swap", "cut", "insert"])
        if kind == "swap":
            if TEXT[at] == changed:
                continue
            damaged = TEXT[:at] + changed + TEXT[at + 1 :]
        else:
            damaged = TEXT[:at] if kind == "cut" else TEXT[:at] + changed + TEXT[at:]
        if damaged[:-1] == TEXT[:-1] and kind == "swap":
            continue  # base32's last character has bits that stand for nothing
        with pytest.raises(OperationFailed) as error:
            parse_token(damaged)
        assert damaged[10:30] not in str(error.value)


def test_a_token_with_mismatched_parts_is_refused() -> None:
    """A checksum is no signature: a forger that corrects it still cannot change uses, or transfer another's record."""
    import msgspec

    from agiledart_agent.identity import tokens

    wire = tokens._from_text(TEXT)
    other = tokens._from_text(create_token(AUTHORITY, now_seconds=NOW, addresses=[]))
    body = msgspec.msgpack.decode(wire.record[64:])
    more_uses = wire.record[:64] + msgspec.msgpack.encode([body[0], 9_999, *body[2:]])
    for forged in (
        msgspec.structs.replace(wire, record=more_uses),
        msgspec.structs.replace(wire, record=other.record),
        msgspec.structs.replace(wire, secret=other.secret),
        msgspec.structs.replace(wire, chain=NET.member("pi")),
        msgspec.structs.replace(wire, record=bytes(100)),
    ):
        with pytest.raises(OperationFailed, match="is not valid"):
            parse_token(tokens._to_text(msgspec.msgpack.encode(forged)))


def test_garbage_with_a_valid_checksum_is_refused() -> None:
    from agiledart_agent.identity import tokens

    draw = Random(4)
    for size in (0, 1, 50, 500):
        with pytest.raises(OperationFailed):
            parse_token(tokens._to_text(draw.randbytes(size)))
    with pytest.raises(OperationFailed, match="damaged"):
        parse_token(PREFIX + base64.b32encode(bytes(10_000)).decode())


def test_a_token_is_read_from_a_source_that_ps_does_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    (tmp_path / "token").write_text(TEXT + "\n")
    assert read_token(f"@{tmp_path / 'token'}") == TEXT
    monkeypatch.setattr(sys, "stdin", io.StringIO(TEXT + "\n"))
    assert read_token("-") == TEXT
    assert read_token(f" {TEXT}") == TEXT
    with pytest.raises(OperationFailed, match="cannot be read"):
        read_token(f"@{tmp_path / 'none'}")


def test_a_member_is_admitted_from_the_founders_token_to_its_grant(tmp_path: Path) -> None:
    founder = Identity.load_or_create(tmp_path / "a", lambda: NOW)
    founder.create_network()
    founder.keep_network()
    text = create_token(Identity.read(tmp_path / "a", lambda: NOW).issuer(), now_seconds=NOW, addresses=["a:1"])
    joiner = Identity.load_or_create(tmp_path / "b", lambda: NOW)
    token = parse_token(text)
    joiner.join_network(token.network, redeem(token, joiner.public_key, NOW))
    joiner.keep_network()
    assert joiner.grant().role == "agent"
    assert Identity.read(tmp_path / "b", lambda: NOW).network == founder.network
    with pytest.raises(OperationFailed, match="cannot make tokens"):
        joiner.issuer()


def test_a_token_may_set_its_bearers_quota() -> None:
    few = Quota(applications=1, disk_mb=20)
    token = parse_token(create_token(ADMIN, now_seconds=NOW, addresses=[], role="submitter", quota=few))
    grant = verify_chain(NET.network, redeem(token, public_of("guest"), NOW), public_of("guest"), NOW, check_signature)
    assert grant.quota == few
    assert describe(token, NOW).quota == {"applications": 1, "executors": 0, "memory_mb": 0, "disk_mb": 20}
    with pytest.raises(OperationFailed, match="Only submitters have quotas"):
        create_token(ADMIN, now_seconds=NOW, addresses=[], role="reader", quota=few)
