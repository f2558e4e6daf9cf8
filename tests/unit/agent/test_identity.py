"""A node's identity on disk: made once, kept, locked; and what a user reads when something is wrong with it."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from agiledart_agent.identity.clock_check import RELEASED
from agiledart_agent.identity.executor_pass import grant_executor, make_executor_pass
from agiledart_agent.identity.identity import Identity
from agiledart_agent.state_files.backed_up_file import backup_path
from agiledart_agent.state_files.durable_file import write_durably
from agiledart_agent.state_files.private_files import MAX_FILE_BYTES, read_private
from agiledart_kernel.errors import OperationFailed, Refused
from agiledart_kernel.grants import verify_chain
from agiledart_kernel.node_id import node_id_of_key
from agiledart_transport.certificates import check_signature, verify_peer_certificate
from tests.keys import HOUR, NOW, Authority, public_of


def clock() -> float:
    return float(NOW)


def fresh(directory: Path) -> Identity:
    return Identity.load_or_create(directory, clock)


def founder(directory: Path) -> Identity:
    identity = fresh(directory)
    identity.create_network()
    identity.keep_network()
    return identity


def test_the_same_node_returns_in_its_next_incarnation(tmp_path: Path) -> None:
    first = founder(tmp_path / "state")
    key, network, chain = first.public_key, first.network, first.chain
    assert first.incarnation == 1
    first.close()
    second = fresh(tmp_path / "state")
    assert (second.public_key, second.network, second.chain) == (key, network, chain)
    assert second.incarnation == 2
    assert second.node_id == node_id_of_key(key)
    assert second.peer_id.startswith("12D3Koo")
    assert second.grant().role == "agent"


def test_secrets_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        founder(tmp_path / "state")
    finally:
        os.umask(old)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / "state").iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_no_part_of_the_key_is_in_a_repr(tmp_path: Path) -> None:
    identity = founder(tmp_path)
    assert repr(identity) == f"Identity({identity.peer_id})"
    assert "object at" in repr(identity.issuer())


def test_only_one_agent_runs_per_directory(tmp_path: Path) -> None:
    first = fresh(tmp_path)
    with pytest.raises(OperationFailed) as error:
        fresh(tmp_path)
    assert f"in use by another agent (pid {os.getpid()})" in str(error.value)
    assert "--state-dir" in str(error.value)
    first.close()
    assert fresh(tmp_path).incarnation == 2


def test_a_killed_agent_leaves_no_lock(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from agiledart_agent.identity.identity import Identity\n"
        "identity = Identity.load_or_create(Path(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert (tmp_path / "lock").exists()
    assert fresh(tmp_path).incarnation == 2


def test_a_tool_reads_beside_a_running_agent(tmp_path: Path) -> None:
    running = founder(tmp_path)
    beside = Identity.read(tmp_path, clock)
    assert beside.issuer().public_key == running.network
    assert Identity.read(tmp_path, clock).incarnation == 0
    with pytest.raises(OperationFailed, match="There is no node in"):
        Identity.read(tmp_path / "elsewhere", clock)


@pytest.mark.parametrize("now", [0.0, -5.0, RELEASED.timestamp() - 1])
def test_an_impossible_clock_is_named(tmp_path: Path, now: float) -> None:
    with pytest.raises(OperationFailed) as error:
        Identity.load_or_create(tmp_path, lambda: now)
    assert "The clock of this node says" in str(error.value)
    assert "timedatectl set-ntp true" in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_lost_counter_restarts_above_any_earlier_incarnation(tmp_path: Path) -> None:
    fresh(tmp_path).close()
    (tmp_path / "incarnation").unlink()
    assert fresh(tmp_path).incarnation == NOW + 1


@pytest.mark.parametrize("content", [b"", b"twelve", b"\xff\xfe", b"9" * 30])
def test_a_damaged_counter_restarts_above_any_earlier_incarnation(tmp_path: Path, content: bytes) -> None:
    fresh(tmp_path).close()
    (tmp_path / "incarnation").write_bytes(content)
    assert fresh(tmp_path).incarnation == NOW + 1


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    fresh(tmp_path).close()
    (tmp_path / "node.key").chmod(0o644)
    with pytest.raises(OperationFailed, match="chmod 600"):
        fresh(tmp_path)
    (tmp_path / "node.key").chmod(0o600)
    fresh(tmp_path)  # the failed attempt released the lock


@pytest.mark.parametrize(
    ("name", "content"),
    [("node.key", b""), ("node.key", b"-----BEGIN PRIVATE KEY-----\nxx\n-----END PRIVATE KEY-----\n"),
     ("network.json", b"{"), ("network.json", b'{"network": 5, "chain": []}')],
)  # fmt: skip
def test_a_damaged_file_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    founder(tmp_path).close()
    (tmp_path / name).write_bytes(content)
    backup_path(tmp_path / name).unlink()
    with pytest.raises(OperationFailed, match="is damaged"):
        fresh(tmp_path)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(OperationFailed, match="cannot be used as state directory"):
        fresh(tmp_path / "file" / "state")


def test_a_crash_between_two_files_of_bootstrap_is_repaired(tmp_path: Path) -> None:
    identity = founder(tmp_path)
    network = identity.network
    identity.close()
    (tmp_path / "network.json").unlink()
    backup_path(tmp_path / "network.json").unlink()
    again = fresh(tmp_path)
    assert again.network == b""
    with pytest.raises(Refused):
        again.grant()
    again.create_network()
    again.keep_network()
    assert again.network == network


def test_a_node_bootstraps_one_network(tmp_path: Path) -> None:
    with pytest.raises(OperationFailed, match="already belongs"):
        founder(tmp_path).create_network()


def test_joining_checks_the_chain_and_stays_with_one_network(tmp_path: Path) -> None:
    identity, net = fresh(tmp_path), Authority()
    me = net.link("authority", (), "nobody", "act", "agent")
    with pytest.raises(Refused, match="another key"):
        identity.join_network(net.network, me)
    founder_chain = founder(tmp_path / "other")
    with pytest.raises(OperationFailed, match="Give another --state-dir"):
        founder_chain.join_network(net.network, me)


def test_only_an_authority_or_an_admin_issues(tmp_path: Path) -> None:
    identity = founder(tmp_path)
    assert identity.issuer().chain == ()
    (tmp_path / "authority.key").rename(tmp_path / "moved to a safe")
    with pytest.raises(OperationFailed, match="cannot make tokens"):
        Identity.read(tmp_path, clock).issuer()


def test_credentials_prove_the_nodes_key(tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    identity = founder(tmp_path)
    der = x509.load_pem_x509_certificate(identity.credentials().pem).public_bytes(Encoding.DER)
    assert verify_peer_certificate(der) == identity.public_key


def test_an_executor_is_granted_one_application_for_some_hours(tmp_path: Path) -> None:
    identity = founder(tmp_path)
    chain = grant_executor(identity, public_of("worker"), "app:taxi", hours=2)
    grant = verify_chain(identity.network, chain, public_of("worker"), NOW, check_signature)
    assert (grant.role, grant.scope, grant.issuer) == ("executor", "app:taxi", identity.public_key)
    assert grant.not_after == NOW + 2 * HOUR
    ready = make_executor_pass(identity, "app:taxi")
    assert ready.grant.key == ready.public_key != identity.public_key
    assert ready.node_id == node_id_of_key(ready.public_key)
    assert "PRIVATE" not in repr(ready)


def test_an_executors_grant_never_outlives_its_agents_grant(tmp_path: Path) -> None:
    identity = founder(tmp_path)
    grant = make_executor_pass(identity, "app:taxi", hours=1e6).grant
    assert grant.not_after == identity.grant().not_after


def test_a_file_is_replaced_atomically_and_leaves_no_trace(tmp_path: Path) -> None:
    write_durably(tmp_path / "f", b"one")
    write_durably(tmp_path / "f", b"two")
    assert (tmp_path / "f").read_bytes() == b"two"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    (tmp_path / "d").mkdir()
    with pytest.raises(OSError):
        write_durably(tmp_path / "d", b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "f"]


def test_a_state_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    (state := tmp_path / "state").mkdir()
    state.chmod(0o777)
    with pytest.raises(OperationFailed, match=rf"Others may write in {state}.*chmod 700 {state}"):
        Identity.load_or_create(state)
    assert list(state.iterdir()) == []


def test_a_state_directory_that_others_may_read_is_made_private(tmp_path: Path) -> None:
    (state := tmp_path / "state").mkdir()
    state.chmod(0o755)
    Identity.load_or_create(state).close()
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a directory to somebody else")
def test_another_users_state_directory_is_refused(tmp_path: Path) -> None:
    (state := tmp_path / "state").mkdir(mode=0o700)
    os.chown(state, 65_534, -1)
    with pytest.raises(OperationFailed, match="belongs to user 65534, not to the one that runs the agent"):
        Identity.load_or_create(state)


@pytest.mark.parametrize("name", ["node.key", "network.json", "authority.key", "incarnation", "lock"])
def test_links_in_the_state_directory_are_not_followed(tmp_path: Path, name: str) -> None:
    identity = Identity.load_or_create(tmp_path / "state")
    identity.create_network()
    identity.keep_network()
    identity.close()
    path = tmp_path / "state" / name
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    before = elsewhere.read_bytes()
    path.symlink_to(elsewhere)
    with pytest.raises(OperationFailed, match=r"is a link|cannot be used as state directory"):
        Identity.load_or_create(tmp_path / "state")
    assert elsewhere.read_bytes() == before


def test_a_file_that_is_not_regular_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(OperationFailed, match="not a plain file"):
        read_private(tmp_path / "pipe")
    (tmp_path / "long").write_bytes(bytes(MAX_FILE_BYTES + 1))
    with pytest.raises(OperationFailed, match="damaged"):
        read_private(tmp_path / "long")


def test_the_agent_replaces_a_link_and_not_its_target(tmp_path: Path) -> None:
    (target := tmp_path / "target").write_text("mine")
    (tmp_path / "a").symlink_to(target)
    write_durably(tmp_path / "a", b"new")
    assert not (tmp_path / "a").is_symlink()
    assert (tmp_path / "a").read_bytes() == b"new"
    assert target.read_text() == "mine"
