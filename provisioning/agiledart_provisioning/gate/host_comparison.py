"""Comparison of a ledger with the provider's list: lost calls, hosts that vanished, doubles, orphans. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agiledart_provisioning.gate.gate_ledger import GateLedger
from agiledart_provisioning.gate.gate_messages import HostsListed, ProviderHost
from agiledart_provisioning.gate.gate_settings import GateSettings
from agiledart_provisioning.gate.lease_entry import LeaseEntry, LeaseState


@dataclass(slots=True)
class HostComparison:
    """Findings of a comparison, for each lease and host.

    Attributes:
        answered: lease of a lost call → its host, the oldest of that name.
        repeatable: leases of lost calls whose host is not there.
        present: live leases whose host is listed. absent: those whose host is not.
        doubles: further hosts of a live lease, the youngest first.
        orphans: hosts of this gate without a live lease, old enough to be released; young: not yet.
    """

    answered: list[tuple[LeaseEntry, ProviderHost]] = field(default_factory=list)
    repeatable: list[LeaseEntry] = field(default_factory=list)
    present: list[LeaseEntry] = field(default_factory=list)
    absent: list[LeaseEntry] = field(default_factory=list)
    doubles: list[tuple[LeaseEntry, ProviderHost]] = field(default_factory=list)
    orphans: list[ProviderHost] = field(default_factory=list)
    young: list[ProviderHost] = field(default_factory=list)


def compared(
    ledger: GateLedger,
    listed: HostsListed,
    lost_since: Mapping[str, int],
    joined_hosts: Mapping[str, str],
    settings: GateSettings,
    own_prefix: str,
    now: int,
) -> HostComparison:
    """Compare a ledger with a list.

    Args:
        lost_since: lease → time at which the answer to its call was lost.
        joined_hosts: lease → id of the host whose node has joined, where nodes know it.
        own_prefix: names of this gate's hosts begin with it.
    """
    result = HostComparison()
    by_name: dict[str, list[ProviderHost]] = {}
    for host in sorted(listed.hosts, key=lambda host: (host.created_ns, host.host_id)):
        by_name.setdefault(host.host_name, []).append(host)
    owners: dict[str, LeaseEntry] = {}
    own_gate = own_prefix.rpartition("-")[2]
    handed_over = {entry.host_id for entry in ledger.entries.values() if entry.gate != own_gate}
    for entry in ledger.live():
        same_name = by_name.get(entry.host_name, [])
        if entry.state is LeaseState.ASKED:
            _compare_call(result, entry, same_name, listed.asked_ns, lost_since, settings)
        elif any(host.host_id == entry.host_id for host in same_name):
            result.present.append(entry)
        else:
            result.absent.append(entry)
        if entry.state is not LeaseState.RELEASING:
            owners[entry.host_name] = entry
    taken = {entry.host_id for entry in ledger.live()} | {host.host_id for _, host in result.answered}
    ends = {entry.host_id: entry.ended_ns for entry in ledger.entries.values() if entry.host_id and entry.state.is_over}
    for name, hosts in by_name.items():
        owner = owners.get(name)
        # A list that was asked for before the end of a host may still show it.
        strangers = [
            host
            for host in hosts
            if host.host_id not in taken | handed_over and ends.get(host.host_id, 0) < listed.asked_ns
        ]
        if owner is not None and owner.state is not LeaseState.ASKED:
            _compare_doubles(result, owner, hosts, strangers, joined_hosts.get(owner.lease_id, ""))
        elif owner is None and name.rpartition("-")[0] == own_prefix:
            _compare_orphans(result, strangers, ends, settings, now)
    return result


def _compare_call(
    result: HostComparison,
    entry: LeaseEntry,
    same_name: Sequence[ProviderHost],
    asked_ns: int,
    lost_since: Mapping[str, int],
    settings: GateSettings,
) -> None:
    since = lost_since.get(entry.lease_id)
    if since is None:
        return  # its answer may still come
    if same_name:
        result.answered.append((entry, same_name[0]))
    elif asked_ns >= since + settings.listing_delay_ns:
        result.repeatable.append(entry)


def _compare_doubles(
    result: HostComparison,
    owner: LeaseEntry,
    hosts: Sequence[ProviderHost],
    strangers: Sequence[ProviderHost],
    joined_host: str,
) -> None:
    """Note all hosts of a lease but the one whose node has joined, else but the ledger's."""
    spared = joined_host if any(host.host_id == joined_host for host in hosts) else owner.host_id
    doubles = list(strangers)
    if spared != owner.host_id:
        doubles = [host for host in hosts if host in strangers or host.host_id == owner.host_id]
    result.doubles += [(owner, host) for host in reversed(doubles) if host.host_id != spared]


def _compare_orphans(
    result: HostComparison,
    strangers: Sequence[ProviderHost],
    ends: Mapping[str, int],
    settings: GateSettings,
    now: int,
) -> None:
    for host in strangers:
        is_old = now - max(host.created_ns, ends.get(host.host_id, 0)) >= settings.orphan_ns
        (result.orphans if is_old else result.young).append(host)
