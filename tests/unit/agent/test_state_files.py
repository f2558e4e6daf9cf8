"""Whatever happens to a file of the state directory: the agent keeps its identity, or reports file, cause and command."""

import asyncio
import io
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agiledart_agent.daemon import _network, _remembered
from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.identity.identity import Identity
from agiledart_agent.identity.tokens import create_token, parse_token, redeem
from agiledart_agent.ring.not_greeted import NotGreeted
from agiledart_agent.ring.peer_addresses import PeerAddressFile
from agiledart_agent.ring.rejoin_monitor import RejoinMonitor
from agiledart_agent.settings import AgentSettings
from agiledart_agent.state_files.backed_up_file import backup_path, read_backed_up, write_backed_up
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.machine import Event
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_overlay.wire.events import UnwatchPeer, WatchPeer

NOW = int(time.time())
OTHERS = ["192.0.2.1:9464", "192.0.2.2:9464"]
FILES = ("node.key", "network.json", "peers.json")


def made_member(founder: Identity, directory: Path, others: list[str]) -> bytes:
    """A node that joined by a token, met others and stopped; its public key."""
    text = create_token(founder.issuer(), now_seconds=NOW, role="agent", uses=1, expires=3600, addresses=())
    identity = Identity.load_or_create(directory)
    token = parse_token(text)
    identity.join_network(token.network, redeem(token, identity.public_key, NOW))
    identity.keep_network()
    PeerAddressFile(directory).save(others)
    identity.close()
    return identity.public_key


@pytest.fixture
def member(tmp_path: Path) -> tuple[Path, bytes, Path]:
    """(state directory of a member, its key, state directory of another member)."""
    founder = Identity.load_or_create(tmp_path / "founder")
    founder.create_network()
    key = made_member(founder, tmp_path / "member", OTHERS)
    made_member(founder, tmp_path / "stranger", OTHERS[:1])
    founder.close()
    return tmp_path / "member", key, tmp_path / "stranger"


def started(directory: Path, *, new_network: bool = False) -> tuple[bytes, list[str], str]:
    """Start as an agent does: (key, addresses to begin at, log)."""
    log = io.StringIO()
    identity = Identity.load_or_create(directory)
    try:
        settings = AgentSettings(state_dir=directory, name="x", new_network=new_network)
        said = AgentLog(stream=log)
        seeds = _network(settings, identity, said, _remembered(settings, identity, said)).seeds
        return identity.public_key, seeds, log.getvalue()
    finally:
        identity.close()


def outcome(directory: Path) -> tuple[bytes, str]:
    """(key with which the agent came up, or why it did not)."""
    try:
        return started(directory)[0], ""
    except OperationFailed as error:
        return b"", str(error)


def emptied(path: Path, stranger: Path) -> None:
    path.write_bytes(b"")


def halved(path: Path, stranger: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def removed(path: Path, stranger: Path) -> None:
    path.unlink()


def anothers(path: Path, stranger: Path) -> None:
    shutil.copyfile(stranger / path.name, path)


def made_a_list(path: Path, stranger: Path) -> None:
    path.write_bytes(b'["x", 5]')


DAMAGES = [emptied, halved, removed, anothers, made_a_list]
Damage = Callable[[Path, Path], None]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_the_last_good_copy_is_used_and_reported(member: tuple[Path, bytes, Path], name: str, damage: Damage) -> None:
    directory, key, stranger = member
    content = (directory / name).read_bytes()
    damage(directory / name, stranger)
    assert started(directory)[:2] == (key, OTHERS)
    if name != "peers.json":  # that is written again as soon as others are met
        assert (directory / name).read_bytes() == content


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_founder_without_its_authority_key_continues_as_a_member(tmp_path: Path, damage: Damage) -> None:
    """It has no copy: moving it to safe storage leaves no copy here, as intended."""
    keys = {}
    for name in ("founder", "stranger"):
        identity = Identity.load_or_create(tmp_path / name)
        identity.create_network()
        identity.keep_network()
        identity.close()
        keys[name] = identity.public_key
    founder, path = tmp_path / "founder", tmp_path / "founder" / "authority.key"
    damage(path, tmp_path / "stranger")
    came_up_as, _, log = started(founder)
    assert came_up_as == keys["founder"]
    if damage is removed:
        assert log == ""
        return
    assert f"{path} cannot be used: it is " in log
    assert "until a copy of the key is put back there" in log
    with pytest.raises(OperationFailed, match=r"authority.key cannot be used: it is (damaged|the key of another)"):
        Identity.read(founder).issuer()


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_in_any_byte_is_repaired(member: tuple[Path, bytes, Path], name: str) -> None:
    path = member[0] / name
    content = path.read_bytes()
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1 << position % 8]) + content[position + 1 :])
        kept = read_backed_up(path, secret=path.suffix == ".key")
        assert kept.content == content
        assert str(path) in kept.notice
    assert started(member[0])[:2] == (member[1], OTHERS)


@pytest.mark.parametrize("name", ["node.key", "network.json"])
def test_the_copy_of_another_node_is_not_used(member: tuple[Path, bytes, Path], name: str) -> None:
    """A whole copy says nothing of whose it is; a key and a network that go together do."""
    directory, key, stranger = member
    content = (directory / name).read_bytes()
    shutil.copyfile(backup_path(stranger / name), backup_path(directory / name))
    came_up_as, _, log = started(directory)
    assert came_up_as == key
    assert (directory / name).read_bytes() == content
    assert read_backed_up(directory / name) == (content, "", True)
    assert f"{backup_path(directory / name)} is another node's: it was written anew." in log


def test_a_damaged_copy_is_not_used(member: tuple[Path, bytes, Path]) -> None:
    path = member[0] / "network.json"
    content, copy = path.read_bytes(), backup_path(path).read_bytes()
    for position in range(len(copy)):
        backup_path(path).write_bytes(copy[:position] + bytes([copy[position] ^ 1]) + copy[position + 1 :])
        assert read_backed_up(path) == (content, "", False)
    assert started(member[0])[0] == member[1]
    assert backup_path(path).read_bytes() == copy, "it was made anew"


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_without_a_copy_file_cause_and_command_are_reported(
    member: tuple[Path, bytes, Path], name: str, damage: Damage
) -> None:
    """Or the agent comes up, and is what it was; a member that knows no address says so by itself (`RejoinMonitor`)."""
    directory, key, stranger = member
    content = (directory / name).read_bytes()
    backup_path(directory / name).unlink()
    damage(directory / name, stranger)
    came_up_as, said = outcome(directory)
    if said:
        assert str(directory / name) in said
        assert "agiledart agent --" in said
        assert any(word in said for word in ("damaged", "missing", "does not match"))
        assert name != "peers.json", "it prevents no start"
    else:
        assert came_up_as == key
        assert name == "peers.json" or (directory / name).read_bytes() == content


def test_any_flipped_bit_in_the_network_file_without_a_copy_names_a_remedy(member: tuple[Path, bytes, Path]) -> None:
    path = member[0] / "network.json"
    content = path.read_bytes()
    for position in range(len(content)):
        backup_path(path).unlink(missing_ok=True)
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        _, said = outcome(member[0])
        if said:
            assert str(path) in said, f"byte {position}: {said}"
            assert "agiledart agent --join" in said, f"byte {position}: {said}"


def test_a_member_bootstraps_another_network_only_on_command(member: tuple[Path, bytes, Path]) -> None:
    directory = member[0]
    for path in (directory / "network.json", backup_path(directory / "network.json")):
        path.unlink()
    with pytest.raises(OperationFailed, match=r"network.json is missing.*peers.json is here.*--new-network"):
        started(directory)
    assert started(directory, new_network=True)[0] == member[1]


def test_files_of_an_earlier_release_are_read_and_get_a_copy(member: tuple[Path, bytes, Path]) -> None:
    for name in FILES:
        backup_path(member[0] / name).unlink()
    assert started(member[0]) == (member[1], OTHERS, "")
    assert backup_path(member[0] / "node.key").stat().st_mode & 0o777 == 0o600


def test_a_copy_is_never_older_than_its_file(tmp_path: Path) -> None:
    """A crash between the two writes leaves the copy with what is new."""
    path = tmp_path / "file"
    write_backed_up(path, b"old")
    old = path.read_bytes()
    write_backed_up(path, b"new")
    path.write_bytes(old)
    assert read_backed_up(path).content == b"new"


class World:
    """Addresses of others, as the rejoin monitor sees them."""

    def __init__(self, tmp_path: Path, addresses: list[str]) -> None:
        memory = PeerAddressFile(tmp_path)
        memory.save(addresses)
        self.answers: dict[str, Peer] = {}
        self.known: list[Peer] = []
        self.events: list[Event] = []
        self.log = io.StringIO()
        self.rejoin_monitor = RejoinMonitor(
            memory, tuple, self.greet, lambda: self.known, self.events.append, AgentLog(stream=self.log)
        )

    async def greet(self, address: str) -> Peer | NotGreeted:
        return self.answers.get(address, NotGreeted(f"{address}: nobody"))

    def look(self) -> bool:
        return asyncio.run(self.rejoin_monitor.look())


def test_an_isolated_node_reports_it_once_retries_and_reports_recovery(tmp_path: Path) -> None:
    world = World(tmp_path, OTHERS)
    assert world.look()
    assert world.look()
    assert "isolated, looking for 192.0.2.1:9464, 192.0.2.2:9464" in world.rejoin_monitor.alone
    assert world.log.getvalue().count("isolated, looking for") == 1
    world.answers[OTHERS[1]] = peer = Peer(NodeId(7), 1, "a2", OTHERS[1])
    assert world.look()
    assert world.events == [], "a new node appears by itself"
    assert world.look()
    assert world.events == [WatchPeer(peer)], "the ring probes it: two rings that meet become one"
    world.known = [peer]
    assert not world.look()
    assert world.rejoin_monitor.alone == ""
    assert world.events == [WatchPeer(peer), UnwatchPeer(peer.node)]
    assert "no longer isolated" in world.log.getvalue()


def test_a_network_of_one_is_not_isolated_and_a_member_without_addresses_is(tmp_path: Path) -> None:
    world = World(tmp_path, [])
    assert not world.look()
    assert world.rejoin_monitor.alone == ""
    world.rejoin_monitor.is_expected = True
    assert world.look()
    assert "without any address of them" in world.rejoin_monitor.alone
    assert "agiledart agent --join" in world.rejoin_monitor.alone


def test_a_node_that_leaves_a_network_removes_its_copies(tmp_path: Path) -> None:
    """An unused network is left for a token's: no copy of the old one brings it back."""
    founder = Identity.load_or_create(tmp_path / "founder")
    founder.create_network()
    text = create_token(founder.issuer(), now_seconds=NOW, role="agent", uses=1, expires=3600, addresses=())
    directory = tmp_path / "node"
    node = Identity.load_or_create(directory)
    node.create_network()
    node.keep_network()
    old = node.network
    assert (directory / "network.json.good").exists()
    node.leave_network()
    token = parse_token(text)
    node.join_network(token.network, redeem(token, node.public_key, NOW))
    node.keep_network()
    node.close()
    assert not (directory / "authority.key").exists()
    for damaged in ("network.json", "node.key"):
        (directory / damaged).unlink()
        again = Identity.load_or_create(directory)
        assert again.network == founder.network != old
        again.close()
    founder.close()
