"""Bans: the same set in any order of arrival, counted from the top down, never against superiors."""

import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agiledart_kernel.bans import MAX_SECONDS, Banned, BanSet, ban_terms, differing, parse_ban
from agiledart_kernel.errors import Refused
from agiledart_kernel.limits import MAX_BANS
from agiledart_kernel.signed_commands import sign_command, verify_command
from agiledart_transport.certificates import check_signature
from tests.keys import HOUR, NOW, Authority, Chain, key_of, public_of

NET = Authority()
ROOT = NET.link("authority", (), "root", "act", "admin", depth=2, until=24 * HOUR)
DEPUTY = NET.link("root", ROOT, "deputy", "act", "admin", depth=1, until=12 * HOUR)
CHAINS: dict[str, Chain] = {"root": ROOT, "deputy": DEPUTY}
DRAW = random.Random(3).randbytes


def ban(target: bytes, by: str = "root", at: int = NOW, until: int = NOW + HOUR, chain: Chain = ()) -> Any:
    chain = chain or CHAINS[by]
    raw = sign_command(key_of(by).sign, chain, NET.network, ban_terms(target, until, "why"), at * 1_000, DRAW)
    return parse_ban(raw, verify_command(NET.network, raw, check_signature))


def test_a_ban_names_its_target_end_and_reason() -> None:
    one = ban(public_of("thief"))
    assert (one.target, one.until, one.reason) == (public_of("thief"), NOW + HOUR, "why")
    assert (one.by, one.depth) == (public_of("root"), 1)
    assert ban(public_of("thief"), until=NOW + 2 * MAX_SECONDS).until == NOW + MAX_SECONDS


@pytest.mark.parametrize("role", ["agent", "submitter", "reader"])
def test_only_admins_ban(role: Any) -> None:
    with pytest.raises(Refused, match="role"):
        ban(public_of("thief"), by="x", chain=NET.member("x", role))


def test_an_admin_with_a_scope_may_not_ban() -> None:
    with pytest.raises(Refused, match="role"):
        ban(public_of("thief"), by="x", chain=NET.member("x", "admin", scope="app:taxi"))


def test_a_user_bans_neither_itself_nor_its_superiors() -> None:
    for target, by in (("root", "root"), ("authority", "root"), ("root", "deputy"), ("deputy", "deputy")):
        with pytest.raises(Refused, match="own"):
            ban(public_of(target), by)
    ban(public_of("deputy"), "root")


def test_the_latest_ban_of_a_target_counts_and_an_unban_is_one() -> None:
    known = BanSet()
    assert known.add(early := ban(public_of("thief"), at=NOW))
    assert not known.add(early)
    assert known.add(ban(public_of("thief"), at=NOW + 1, until=0))
    assert known.in_force()[public_of("thief")] == 0
    assert not known.add(early)
    assert known.add(ban(public_of("thief"), "deputy", at=NOW + 2))
    assert known.in_force()[public_of("thief")] == NOW + HOUR


def test_bans_by_a_banned_admin_are_void() -> None:
    for signed_command in itertools.permutations(
        [ban(public_of("friend"), "deputy"), ban(public_of("deputy"), "root", at=NOW + 5)]
    ):
        known = BanSet()
        for one in signed_command:
            known.add(one)
        assert known.in_force() == {public_of("deputy"): NOW + HOUR}


SOME = [
    ban(public_of(who), by, at=NOW + at, until=NOW + until)
    for (who, by), at, until in itertools.product(
        (("thief", "root"), ("thief", "deputy"), ("deputy", "root"), ("friend", "deputy")), (0, 7), (-NOW, HOUR)
    )
]


@given(st.permutations(SOME))
def test_the_order_of_arrival_does_not_matter(signed_command: list[Any]) -> None:
    known, other = BanSet(), BanSet()
    for one in SOME:
        known.add(one)
    for one in signed_command:
        other.add(one)
    assert known.in_force() == other.in_force()
    assert known.digest() == other.digest()
    assert differing(known.digest(), other.digest()) == []


def test_digests_differ_when_bans_differ() -> None:
    known, other = BanSet(), BanSet()
    assert known.digest() == b""
    for name in ("a", "b", "c"):
        known.add(ban(public_of(name)))
        other.add(known.in_range(public_of(name)[0])[-1])
    extra = ban(public_of("d"))
    known.add(extra)
    assert differing(known.digest(), other.digest()) == [extra.target[0]]
    assert differing(known.digest(), b"") == sorted({public_of(name)[0] for name in "abcd"})


def test_bans_are_bounded_and_old_ones_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agiledart_kernel.bans.MAX_BANS", 2)
    assert MAX_BANS > 2
    known = BanSet()
    assert [known.add(ban(public_of(name))) for name in "abc"] == [True, True, False]
    assert known.add(ban(public_of("a"), at=NOW + 1))
    assert (len(known), known.refused) == (2, 1)
    known.forget_old(NOW + MAX_SECONDS)
    assert len(known) == 2
    known.forget_old(NOW + MAX_SECONDS + 2)
    assert len(known) == 0


def test_a_ban_expires() -> None:
    now = NOW
    banned = Banned(lambda: now)
    banned.until = {b"thief": NOW + 10, b"friend": 0}
    assert list(banned) == [b"thief"]
    assert b"friend" not in banned
    now += 10
    assert b"thief" not in banned
    assert len(banned) == 0
