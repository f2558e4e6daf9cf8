"""A key that others may have gives way to another one; the authority's key is moved to a safe place."""

import time
from pathlib import Path

import pytest

from agiledart_agent.identity.identity import Identity
from agiledart_agent.identity.rotation import export_authority, renew_user, rotate_node, rotate_user
from agiledart_agent.identity.tokens import Token, create_token, parse_token
from agiledart_agent.identity.user_identity import identity_of, keep_identity, last_link
from agiledart_kernel.errors import OperationFailed


def founded(folder: Path) -> Identity:
    identity = Identity.load_or_create(folder)
    identity.create_network()
    identity.keep_network()
    return identity


def token(identity: Identity, role: str = "agent") -> Token:
    made = create_token(identity.issuer(), now_seconds=int(time.time()), addresses=("pi1:9464",), role=role)  # type: ignore[arg-type]
    return parse_token(made)


def test_a_node_gets_another_key_by_a_token_and_the_founder_by_its_own_key(tmp_path: Path) -> None:
    founder = founded(tmp_path / "a1")
    old = founder.public_key
    with pytest.raises(OperationFailed, match="is in use by another agent"):
        rotate_node(tmp_path / "a1", None)
    founder.close()
    keys = rotate_node(tmp_path / "a1", None)
    after = Identity.read(tmp_path / "a1")
    assert (keys.old, keys.new, after.network) == (old, after.public_key, founder.network)
    assert after.grant().role == "agent"
    assert keys.old != keys.new

    lets_in = token(after)
    member = Identity.load_or_create(tmp_path / "a2")
    member.join_network(lets_in.network, founder_chain(after, member), b"")
    member.keep_network()
    member.close()
    with pytest.raises(OperationFailed, match="needs a token"):
        rotate_node(tmp_path / "a2", None)
    with pytest.raises(OperationFailed, match="makes readers; this takes one of the role agent"):
        rotate_node(tmp_path / "a2", token(after, "reader"))
    keys = rotate_node(tmp_path / "a2", lets_in)
    found = Identity.read(tmp_path / "a2")
    assert found.public_key == keys.new != member.public_key
    assert found.token == lets_in.signed_record
    found.check_membership()
    with pytest.raises(OperationFailed, match="There is no node in"):
        rotate_node(tmp_path / "nobody", lets_in)


def test_runs_of_the_old_key_are_set_aside_and_named(tmp_path: Path) -> None:
    founded(tmp_path / "a1").close()
    assert rotate_node(tmp_path / "a1", None).runs == ()
    for run in ("taxi.1", "taxi.2", "my.app.7"):
        (tmp_path / "a1" / "runs" / run).mkdir(parents=True)
    keys = rotate_node(tmp_path / "a1", None)
    assert keys.runs == ("my.app", "taxi")
    assert keys.aside is not None
    assert sorted(path.name for path in keys.aside.iterdir()) == ["my.app.7", "taxi.1", "taxi.2"]
    assert not (tmp_path / "a1" / "runs").exists()


def founder_chain(founder: Identity, member: Identity) -> tuple[bytes, ...]:
    from agiledart_agent.identity.tokens import redeem

    return redeem(token(founder), member.public_key, int(time.time()))


def test_a_token_of_another_network_changes_nothing(tmp_path: Path) -> None:
    founder, other = founded(tmp_path / "a1"), founded(tmp_path / "b1")
    founder.close()
    before = (tmp_path / "a1" / "node.key").read_bytes()
    with pytest.raises(OperationFailed, match="The token is of network"):
        rotate_node(tmp_path / "a1", token(other))
    assert (tmp_path / "a1" / "node.key").read_bytes() == before
    other.close()


def test_a_user_gets_another_key_and_keeps_the_old_one(tmp_path: Path) -> None:
    founder = founded(tmp_path / "a1")
    first, second = token(founder, "submitter"), token(founder, "submitter")
    kept = tmp_path / "kept"
    keep_identity("work", first.text, folder=kept)
    old = identity_of("work", folder=kept)
    with pytest.raises(OperationFailed, match="has its key from this token already"):
        rotate_user("work", first, kept)
    with pytest.raises(OperationFailed, match="this takes one of the role submitter"):
        rotate_user("work", token(founder, "reader"), kept)
    rotate_user("work", second, kept)
    assert identity_of("work.old", folder=kept) == old
    new = identity_of("work", folder=kept)
    assert last_link(new).key != last_link(old).key
    renew_user("work", old.chain, kept)
    assert identity_of("work", folder=kept).chain == old.chain
    assert (kept / "work.identity").stat().st_mode & 0o777 == 0o600
    founder.close()


def test_the_authoritys_key_is_exported_and_imported(tmp_path: Path) -> None:
    founder = founded(tmp_path / "a1")
    safe = tmp_path / "authority.key"
    export_authority(tmp_path / "a1", safe, remove=False)
    assert safe.stat().st_mode & 0o777 == 0o600
    assert Identity.read(tmp_path / "a1").authority is not None
    with pytest.raises(OperationFailed, match="already exists"):
        export_authority(tmp_path / "a1", safe, remove=True)
    safe.unlink()
    export_authority(tmp_path / "a1", safe, remove=True)
    founder.close()
    without = Identity.load_or_create(tmp_path / "a1")
    without.check_membership()
    with pytest.raises(OperationFailed, match="neither the network's authority key nor an admin's"):
        without.issuer()
    without.close()
    with pytest.raises(OperationFailed, match="already moved to safe storage"):
        export_authority(tmp_path / "a1", tmp_path / "again", remove=False)
    safe.rename(tmp_path / "a1" / "authority.key")
    assert Identity.read(tmp_path / "a1").issuer().network == founder.network
