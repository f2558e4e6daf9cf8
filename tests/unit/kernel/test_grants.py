"""Chains of grants: valid ones, and each reason for a refusal (oracle A1 of the admission spec)."""

from collections.abc import Callable
from random import Random

import msgpack
import pytest

from agiledart_kernel.errors import Refused
from agiledart_kernel.grants import (
    LINK_CONTEXT,
    NO_QUOTA,
    REASONS,
    Grant,
    Quota,
    decode_link,
    link_hash,
    sign_link,
    verify_chain,
)
from agiledart_kernel.limits import MAX_CHAIN_LINKS, MAX_LINK_BYTES
from agiledart_transport.certificates import check_signature
from tests.keys import HOUR, NOW, Authority, Chain, key_of, public_of

NET = Authority()


def verify(chain: object, holder: str, now: int = NOW, banned: tuple[bytes, ...] = ()) -> Grant:
    return verify_chain(NET.network, chain, public_of(holder), now, check_signature, banned)  # type: ignore[arg-type]


INVITATION = NET.link("authority", (), "token", "invite", "agent", until=24 * HOUR)
MEMBER = NET.link("token", INVITATION, "pi", "act", "agent", until=12 * HOUR)
EXECUTOR = NET.link("pi", MEMBER, "worker", "act", "executor", scope="app:taxi")
ADMIN = NET.link("authority", (), "boss", "act", "admin", until=99 * HOUR, depth=1)
INVITED_READER = NET.link("boss", ADMIN, "laptop", "invite", "reader", scope="sink:top")
READER = NET.link("laptop", INVITED_READER, "thief", "act", "reader", scope="sink:top")


def test_a_member_acts_as_agent() -> None:
    grant = verify(MEMBER, "pi")
    assert (grant.role, grant.scope, grant.key) == ("agent", "", public_of("pi"))
    assert grant.issuer == public_of("token")
    assert grant.invitation == link_hash(INVITATION[0])
    assert grant.not_after == NOW + 12 * HOUR


def test_an_executor_acts_for_one_application_and_names_its_agent() -> None:
    grant = verify(EXECUTOR, "worker")
    assert (grant.role, grant.scope, grant.issuer) == ("executor", "app:taxi", public_of("pi"))
    assert grant.links == tuple(link_hash(signed) for signed in EXECUTOR)
    assert grant.keys == (public_of("token"), public_of("pi"), public_of("worker"))


def test_an_admin_invites_a_reader_of_one_sink() -> None:
    assert verify(READER, "thief").scope == "sink:top"
    assert verify(ADMIN, "boss").depth == 1


def test_an_admin_appoints_as_many_generations_as_its_depth_allows() -> None:
    second = NET.link("boss", ADMIN, "deputy", "act", "admin", depth=0)
    assert verify(second, "deputy").role == "admin"
    third = NET.link("deputy", second, "clerk", "act", "admin", depth=0)
    with pytest.raises(Refused, match="policy"):
        verify(third, "clerk")


def test_validity_includes_both_ends_and_five_minutes_of_skew_at_the_beginning() -> None:
    chain = NET.link("authority", (), "pi", "act", "agent", since=1_000, until=2_000)
    assert verify(chain, "pi", NOW + 700).not_before == NOW + 1_000
    assert verify(chain, "pi", NOW + 2_000)
    with pytest.raises(Refused, match="not yet valid"):
        verify(chain, "pi", NOW + 699)
    with pytest.raises(Refused, match="expired"):
        verify(chain, "pi", NOW + 2_001)


def raw(signer: str, chain: Chain, *fields: object) -> Chain:
    """A link whose body is anything, properly signed: a malicious member can make it."""
    body = msgpack.packb([NET.network, link_hash(chain[-1]), *fields])
    return (*chain, key_of(signer).sign(LINK_CONTEXT + body) + body)


def weak() -> tuple[Chain, bytes]:
    key = b"\x01" + bytes(31)
    chain = sign_link(
        NET.network, key_of("token").sign, INVITATION, key=key, use="act", role="agent", not_before=NOW,
        not_after=NOW + HOUR,
    )  # fmt: skip
    return chain, key


PI, THIEF = public_of("pi"), public_of("thief")

FORGERIES: dict[str, tuple[str, Chain | list[object], str]] = {
    "somebody else's chain": ("another key", MEMBER, "thief"),
    "signed by nobody above": ("signature", NET.link("thief", INVITATION, "thief", "act", "agent"), "thief"),
    "an invitation used as membership": ("an invitation is not a member", INVITATION, "token"),
    "a member makes a member": ("policy", NET.link("pi", MEMBER, "thief", "act", "agent"), "thief"),
    "a member invites": ("policy", NET.link("pi", MEMBER, "thief", "invite", "agent"), "thief"),
    "a token makes an executor": (
        "policy", NET.link("token", INVITATION, "thief", "act", "executor", scope="app:x"), "thief"),
    "a token for agents makes an admin": ("policy", NET.link("token", INVITATION, "thief", "act", "admin"), "thief"),
    "a token makes an admin with depth": (
        "policy",
        NET.link("t", NET.link("authority", (), "t", "invite", "admin", depth=1), "thief", "act", "admin", depth=1),
        "thief"),
    "a reader makes an agent": ("policy", NET.link("thief", READER, "pi", "act", "agent"), "pi"),
    "an executor makes an agent": ("policy", NET.link("worker", EXECUTOR, "thief", "act", "agent"), "thief"),
    "an agent makes an executor of everything": ("policy", NET.link("pi", MEMBER, "w", "act", "executor"), "w"),
    "an agent makes an executor of a sink": (
        "policy", NET.link("pi", MEMBER, "w", "act", "executor", scope="sink:top"), "w"),
    "an agent invites an executor": ("policy", NET.link("pi", MEMBER, "w", "invite", "executor", scope="app:x"), "w"),
    "an admin appoints its equal": ("policy", NET.link("boss", ADMIN, "thief", "act", "admin", depth=1), "thief"),
    "an admin makes an executor": (
        "policy", NET.link("boss", ADMIN, "thief", "act", "executor", scope="app:x"), "thief"),
    "the authority makes an executor": (
        "policy", NET.link("authority", (), "w", "act", "executor", scope="app:x"), "w"),
    "an agent with depth": ("policy", NET.link("authority", (), "pi", "act", "agent", depth=1), "pi"),
    "longer than the token": (
        "outlives its parent", NET.link("token", INVITATION, "pi", "act", "agent", until=99 * HOUR), "pi"),
    "earlier than the token": (
        "outlives its parent", NET.link("token", INVITATION, "pi", "act", "agent", since=-1), "pi"),
    "wider than the token": ("wider scope", NET.link("laptop", INVITED_READER, "thief", "act", "reader"), "thief"),
    "another scope than the token's": (
        "wider scope", NET.link("laptop", INVITED_READER, "thief", "act", "reader", scope="sink:other"), "thief"),
    "empty": ("length", (), "pi"),
    "no list": ("length", [None], "pi"),
    "too many links": ("length", MEMBER + MEMBER[:1] * (MAX_CHAIN_LINKS - 1), "pi"),
    "a link left out": ("order", (EXECUTOR[0], EXECUTOR[2]), "worker"),
    "links swapped": ("order", (MEMBER[1], MEMBER[0]), "pi"),
    "a link that is too long": ("length", (MEMBER[0] + bytes(MAX_LINK_BYTES),), "pi"),
    "a link without a body": ("length", (MEMBER[0][:64],), "pi"),
    "another network": ("another network", Authority("thief").link("thief", (), "thief", "act", "agent"), "thief"),
    "not MessagePack": ("form", (MEMBER[0][:64] + b"\xc1" * 40,), "pi"),
    "a float for an end": (
        "form", raw("token", INVITATION, PI, "act", "agent", "", 0, float("nan"), 0), "pi"),
    "a negative depth": ("form", raw("token", INVITATION, PI, "act", "agent", "", 0, NOW, -1), "pi"),
    "one field more": ("form", raw("token", INVITATION, PI, "act", "agent", "", 0, NOW, 0, "more"), "pi"),
    "a field less": ("form", raw("token", INVITATION, PI, "act", "agent", ""), "pi"),
    "an unknown role": ("form", raw("token", INVITATION, PI, "act", "king", "", 0, NOW), "pi"),
    "an unknown use": ("form", raw("token", INVITATION, PI, "own", "agent", "", 0, NOW), "pi"),
    "an unknown scope": ("form", raw("token", INVITATION, PI, "act", "agent", "all:x", 0, NOW), "pi"),
    "a scope with a line break": ("form", raw("token", INVITATION, PI, "act", "agent", "app:x\n", 0, NOW), "pi"),
    "a short key": ("form", raw("token", INVITATION, PI[:31], "act", "agent", "", 0, NOW), "pi"),
}  # fmt: skip


@pytest.mark.parametrize("case", FORGERIES)
def test_forgery_is_refused_with_its_reason(case: str) -> None:
    reason, chain, holder = FORGERIES[case]
    with pytest.raises(Refused) as refusal:
        verify(chain, holder)
    assert refusal.value.reason == reason
    assert reason in REASONS


def test_a_key_of_small_order_is_refused_even_with_a_good_signature() -> None:
    chain, key = weak()
    with pytest.raises(Refused) as refusal:
        verify_chain(NET.network, chain, key, NOW, check_signature)
    assert refusal.value.reason == "weak key"


@pytest.mark.parametrize("banned", [link_hash(INVITATION[0]), link_hash(MEMBER[1]), PI, public_of("worker")])
def test_a_ban_of_any_link_or_key_of_the_chain_counts(banned: bytes) -> None:
    assert verify(EXECUTOR, "worker", banned=(bytes(32),))
    with pytest.raises(Refused, match="banned"):
        verify(EXECUTOR, "worker", banned=(banned,))
    assert verify(EXECUTOR, "worker").is_banned({banned})
    assert not verify(EXECUTOR, "worker").is_banned({bytes(32)})


def test_the_compared_network_is_the_verifiers_own() -> None:
    theirs = Authority("thief")
    with pytest.raises(Refused, match="another network"):
        verify_chain(NET.network, theirs.member("pi"), public_of("pi"), NOW, check_signature)


def test_a_flipped_bit_anywhere_is_refused() -> None:
    draw = Random(1)
    for _ in range(2_000):
        chain = list(EXECUTOR)
        place = draw.randrange(len(chain))
        changed = bytearray(chain[place])
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        chain[place] = bytes(changed)
        with pytest.raises(Refused) as refusal:
            verify(chain, "worker")
        assert refusal.value.reason in REASONS


def test_the_checker_is_asked_for_every_link() -> None:
    asked: list[bytes] = []

    def check(key: bytes, signature: bytes, message: bytes) -> bool:
        asked.append(key)
        return True

    checker: Callable[[bytes, bytes, bytes], bool] = check
    verify_chain(NET.network, EXECUTOR, public_of("worker"), NOW, checker)
    assert asked == [NET.network, public_of("token"), public_of("pi")]


def test_a_chain_of_three_is_small() -> None:
    assert sum(map(len, EXECUTOR)) < 700


def test_a_quota_in_a_submitters_links_cannot_be_omitted_or_raised() -> None:
    few = Quota(applications=2, memory_mb=512)
    invited = NET.link("authority", (), "guest token", "invite", "submitter", quota=few)
    assert verify(NET.link("guest token", invited, "guest", "act", "submitter", quota=few), "guest").quota == few
    for other in (NO_QUOTA, Quota(applications=3, memory_mb=512), Quota(applications=2)):
        with pytest.raises(Refused, match="policy"):
            verify(NET.link("guest token", invited, "guest", "act", "submitter", quota=other), "guest")
    for role in ("admin", "agent", "reader"):
        with pytest.raises(Refused, match="policy"):
            verify(NET.link("authority", (), "guest", "act", role, quota=few), "guest")


def test_a_link_without_a_quota_keeps_the_older_form() -> None:
    body = msgpack.unpackb(INVITATION[0][64:])
    assert len(body) == 9
    assert decode_link(INVITATION[0]).quota == NO_QUOTA
    assert len(msgpack.unpackb(NET.link("authority", (), "x", "act", "submitter", quota=Quota(1))[0][64:])) == 10
