"""A token is redeemed once for a key that is kept: commands continue when the token admits no node any more."""

from pathlib import Path
from typing import Any

import pytest

from agiledart_agent.identity.identity import Issuer
from agiledart_agent.identity.tokens import create_token
from agiledart_agent.identity.user_identity import (
    identities_folder,
    identity_of,
    keep_identity,
    known_identities,
    last_link,
)
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_kernel.grants import verify_chain
from agiledart_transport.certificates import check_signature
from tests.keys import HOUR, NOW, Authority, key_of

NET = Authority()


def token(role: Any = "submitter", expires: int = HOUR, member_for: int = 24 * HOUR, scope: str = "") -> str:
    issuer = Issuer(NET.network, key_of("authority").sign, NET.network, ())
    return create_token(
        issuer, now_seconds=NOW, addresses=(), role=role, expires=expires, member_for=member_for, scope=scope
    )


def test_the_first_use_creates_a_key_that_later_ones_use(tmp_path: Path) -> None:
    text = token(scope="app:taxi")
    first = identity_of(text, NOW, tmp_path / "kept")
    later = identity_of(text, NOW + 2 * HOUR, tmp_path / "kept")  # the token has ended by then
    assert later == first
    link = last_link(later)
    assert (link.role, link.scope) == ("submitter", "app:taxi")
    assert verify_chain(NET.network, later.chain, link.key, NOW + 2 * HOUR, check_signature).key == link.key
    (name,) = known_identities(tmp_path / "kept")
    path = tmp_path / "kept" / f"{name}.identity"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert text not in path.read_text()


def test_a_user_has_one_key_on_every_machine(tmp_path: Path) -> None:
    text = token()
    assert identity_of(text, NOW, tmp_path / "a").seed == identity_of(text, NOW + 9, tmp_path / "b").seed


def test_an_expired_membership_needs_a_new_token(tmp_path: Path) -> None:
    text = token(member_for=HOUR)
    identity_of(text, NOW, tmp_path)
    with pytest.raises(OperationFailed, match=r"it expired 1 h ago\. Make a new one"):
        identity_of(text, NOW + 2 * HOUR + 60, tmp_path)


def test_a_late_first_use_of_a_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match="expired"):
        identity_of(token(), NOW + 2 * HOUR, tmp_path)


def test_a_name_identifies_the_bearer_of_a_token(tmp_path: Path) -> None:
    text = token()
    file = tmp_path / "submitter.token"
    file.write_text(text + "\n")
    folder = tmp_path / "kept"
    kept = keep_identity("work", f"@{file}", NOW, folder)
    assert identity_of("work", NOW + 2 * HOUR, folder) == identity_of(f"@{kept}", NOW + 2 * HOUR, folder)
    assert identity_of("work", NOW, folder).seed == identity_of(text, NOW, folder).seed
    with pytest.raises(OperationFailed, match="An identity work already exists"):
        keep_identity("work", text, NOW, folder)
    with pytest.raises(ConfigurationError, match=r"There is no identity 'wrok'. Known: .*work"):
        identity_of("wrok", NOW, folder)
    for wrong in ("../work", "", "a/b", ".hidden"):
        with pytest.raises(ConfigurationError, match="is an invalid name"):
            keep_identity(wrong, text, NOW, folder)
        with pytest.raises(ConfigurationError, match="There is no identity"):
            identity_of(wrong, NOW, folder)


def test_a_file_that_others_may_read_is_not_used_by_name(tmp_path: Path) -> None:
    path = keep_identity("work", token(), NOW, tmp_path)
    path.chmod(0o644)
    with pytest.raises(OperationFailed, match="chmod 600"):
        identity_of("work", NOW, tmp_path)


def test_an_unwritable_home_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert identity_of(token(), NOW, tmp_path / "file" / "kept").chain


def test_tokens_of_agents_are_for_agents_only(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match=r"This token is for a new agent\. Commands need"):
        identity_of(token("agent"), NOW, tmp_path)


def test_user_identities_are_stored_in_these_paths() -> None:
    assert identities_folder({"HOME": "/home/ann"}) == Path("/home/ann/.config/agiledart/identities")
    assert identities_folder({"HOME": "/home/ann", "XDG_CONFIG_HOME": "/c"}) == Path("/c/agiledart/identities")
