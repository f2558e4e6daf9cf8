"""Emulated sites behind routers: network namespaces and nftables. It needs root, `ip` and `nft`.

outside 11.0.0.0/24: open hosts o1, o2, …, and one router for each site
site: hosts .20, .21, … of 192.168.1.0/24 (all sites the same, if so wished) behind a router that translates addresses
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from tests.e2e.hosts import fresh_tag, ip


def lacking() -> str:
    """Why there can be none here; empty: there can."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        return "emulated routers need root and ip (Debian: iproute2)"
    return "" if shutil.which("nft") else "emulated routers need nft (Debian: nftables)"


class Site(NamedTuple):
    """A site behind a router.

    Args:
        hosts: number of hosts.
        network: first three numbers of its addresses.
        keeps_ports: the router gives connections the port that they have inside.
        rejects: it answers strangers with RST instead of silence.
        layers: routers in a row, such as a provider's in front of the home's own.
        forgets: seconds after which it forgets a connection that is idle; 0: as the kernel does.
    """

    hosts: int = 1
    network: str = "192.168.1"
    keeps_ports: bool = False
    rejects: bool = False
    layers: int = 1
    forgets: int = 0


class Routers:
    """Open hosts and sites. Names of hosts: `o1` is the first open one, `s1.1` the first of the first site."""

    def __init__(self, open_hosts: int, sites: Sequence[Site]) -> None:
        self.tag = fresh_tag("ar")
        self.sites, self.open_hosts = sites, open_hosts
        self._spaces: list[str] = []

    def space(self, name: str) -> str:
        """Name of a host's namespace."""
        return f"{self.tag}{name}"

    def enter(self, name: str) -> tuple[str, ...]:
        """Words in front of a command that runs on a host."""
        return ("ip", "netns", "exec", self.space(name))

    def address(self, name: str) -> str:
        """Of a host, as it sees it itself."""
        if name.startswith("o"):
            return f"11.0.0.{int(name[1:])}"
        site, _, host = name[1:].partition(".")
        return f"{self.sites[int(site) - 1].network}.{19 + int(host)}"

    def outside(self, site: int) -> str:
        """Outside address of a site's router; the first site is 1."""
        return f"11.0.0.{100 + site}"

    def make(self) -> None:
        """Bring all up; raises CalledProcessError where there are no namespaces."""
        self._add("sw")
        ip("-n", self.space("sw"), "link", "add", "inner", "type", "bridge")
        ip("-n", self.space("sw"), "link", "set", "inner", "up")
        for number in range(1, self.open_hosts + 1):
            self._add(f"o{number}")
            self._plug(f"o{number}", "eth0", "sw", f"o{number}", self.address(f"o{number}"))
        for number, site in enumerate(self.sites, 1):
            self._make_site(number, site)

    def _make_site(self, number: int, site: Site) -> None:
        """Make the routers of a site, the outermost first, and its hosts behind the innermost."""
        switch = "sw"
        for layer in range(1, site.layers + 1):
            router = self._router(number, layer)
            is_last = layer == site.layers
            network = site.network if is_last else f"100.64.{10 * number + layer}"
            self._add(router)
            address = self.outside(number) if layer == 1 else f"100.64.{10 * number + layer - 1}.2"
            self._plug(router, "out", switch, f"r{number}", address)
            if layer > 1:
                ip("-n", self.space(router), "route", "add", "default", "via", f"100.64.{10 * number + layer - 1}.1")
            ip("-n", self.space(router), "link", "add", "inner", "type", "bridge")
            ip("-n", self.space(router), "addr", "add", f"{network}.1/24", "dev", "inner")
            ip("-n", self.space(router), "link", "set", "inner", "up")
            self._translate(router, site)
            switch = router
        for host in range(1, site.hosts + 1):
            name = f"s{number}.{host}"
            self._add(name)
            self._plug(name, "eth0", switch, f"h{host}", self.address(name))
            ip("-n", self.space(name), "route", "add", "default", "via", f"{site.network}.1")

    def _router(self, number: int, layer: int = 1) -> str:
        return f"r{number}" if layer == 1 else f"r{number}.{layer}"

    def _translate(self, router: str, site: Site) -> None:
        """Let a router translate addresses of connections from inside, and let no others in."""
        self._run(router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        random = "" if site.keeps_ports else " fully-random"
        verdict = "reject with tcp reset" if site.rejects else "drop"
        rules = f"""
            table ip site {{
              chain after {{ type nat hook postrouting priority srcnat; oifname "out" masquerade{random}; }}
              chain through {{ type filter hook forward priority filter;
                iifname "out" ct state established,related accept; iifname "out" meta l4proto tcp {verdict}; iifname "out" drop; }}
              chain to_router {{ type filter hook input priority filter;
                iifname "out" ct state established,related accept; iifname "out" meta l4proto tcp {verdict}; }}
              chain strict {{ type filter hook forward priority filter - 1;
                ct state invalid drop; oifname "out" tcp flags & (syn | ack) != syn ct state new drop; }}
            }}"""
        subprocess.run([*self.enter(router), "nft", "-f", "-"], input=rules.encode(), check=True, capture_output=True)
        if site.forgets:
            self._run(router, "sysctl", "-qw", f"net.netfilter.nf_conntrack_tcp_timeout_established={site.forgets}")

    def change_outside(self, site: int, address: str) -> None:
        """Give a site's router another outside address, as providers do; it forgets all connections."""
        router = self.space(self._router(site))
        ip(
            "-n", router, "addr", "flush", "dev", "out"
        )  # the kernel then forgets what was translated to the old address
        ip("-n", router, "addr", "add", f"{address}/24", "dev", "out")

    def _add(self, name: str) -> None:
        ip("netns", "add", self.space(name))
        self._spaces.append(self.space(name))
        ip("-n", self.space(name), "link", "set", "lo", "up")

    def _plug(self, name: str, device: str, switch: str, port: str, address: str) -> None:
        where = ("netns", self.space(name))
        ip("-n", self.space(switch), "link", "add", port, "type", "veth", "peer", "name", device, *where)
        ip("-n", self.space(switch), "link", "set", port, "master", "inner", "up")
        ip("-n", self.space(name), "addr", "add", f"{address}/24", "dev", device)
        ip("-n", self.space(name), "link", "set", device, "up")

    def _run(self, name: str, *words: str) -> None:
        subprocess.run([*self.enter(name), *words], check=True, capture_output=True)

    def publish_only(self, name: str, port: int) -> None:
        """Let a host take connections at one port only, as a container with one published port does."""
        rules = f"""
            table ip one_port {{ chain arriving {{ type filter hook input priority filter;
              iifname "eth0" tcp dport != {port} ct state new drop; }}
            }}"""
        subprocess.run([*self.enter(name), "nft", "-f", "-"], input=rules.encode(), check=True, capture_output=True)

    def counts_to_private(self, name: str) -> None:
        """Count what a host sends to private addresses; `sent_to_private` reads the number."""
        rules = """
            table ip watch { chain leaving { type filter hook output priority filter;
              ip daddr { 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16 } counter comment "private"; }
            }"""
        subprocess.run([*self.enter(name), "nft", "-f", "-"], input=rules.encode(), check=True, capture_output=True)

    def sent_to_private(self, name: str) -> int:
        """Packets to private addresses that a host has sent since `counts_to_private`."""
        listed = subprocess.run(
            [*self.enter(name), "nft", "list", "table", "ip", "watch"], check=True, capture_output=True, text=True
        ).stdout
        return int(listed.partition("counter packets ")[2].split()[0])

    def remove(self) -> None:
        """Take all down."""
        for space in self._spaces:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


def brought_up(open_hosts: int, *sites: Site) -> Iterator[Routers]:
    """For a fixture: hosts that are up, and gone afterwards. Skips where there can be none, and says why."""
    if lack := lacking():
        pytest.skip(f"NOT RUN: {lack}")
    made = Routers(open_hosts, sites)
    try:
        made.make()
    except subprocess.CalledProcessError as error:
        made.remove()
        pytest.skip(f"NOT RUN: no emulated routers here ({error.stderr.decode().strip()})")
    try:
        yield made
    finally:
        made.remove()
