"""Finding out under which address others reach this machine, and who holds a port that we wanted."""

import contextlib
import os
import socket
from ipaddress import IPv6Address, ip_address
from itertools import pairwise
from pathlib import Path

from agiledart_transport.connecting import format_address

WILDCARDS = ("0.0.0.0", "::", "")


def outbound_address(towards: str = "192.0.2.1") -> str:
    """The address that this machine would use towards another one; nothing is sent. Loopback when there is no
    network.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((towards, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def own_addresses() -> list[str]:
    """The addresses of this machine, as the kernel tells them; those that reach other machines first."""
    found = {}
    for table, mark in (("/proc/net/fib_trie", "/32 host LOCAL"), ("/proc/net/if_inet6", "")):
        with contextlib.suppress(OSError):
            lines = Path(table).read_text().splitlines()
            for before, line in pairwise(["", *lines]):
                if mark and mark in line:
                    found[before.rpartition("-- ")[2].strip()] = True
                elif not mark:
                    found[str(IPv6Address(bytes.fromhex(line.split()[0])))] = True
    return sorted(found, key=lambda text: (ip_address(text).is_loopback, ip_address(text).version, text))


def not_own_address_text(host: str, port: int) -> str:
    """What to say of an address to listen on that is none of this machine's."""
    mine = ", ".join(own_addresses()) or "none was found"
    return (
        f"{host} is no address of this machine. Its addresses: {mine}. "
        f"Give --listen one of them, for example {format_address(outbound_address(), port)}."
    )


def process_on_port(port: int) -> str:
    """`pid 812, agiledart agent` of the process that listens on a TCP port, or "" when that can't be found out."""
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{fields[9]}]")
    for pid in filter(str.isdigit, os.listdir("/proc") if inodes else ()):
        with contextlib.suppress(OSError):
            if any(os.readlink(entry.path) in inodes for entry in os.scandir(f"/proc/{pid}/fd")):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                shown = "agiledart agent" if any("agiledart" in word for word in words) else Path(words[0]).name
                return f"pid {pid}, {shown}"
    return ""
