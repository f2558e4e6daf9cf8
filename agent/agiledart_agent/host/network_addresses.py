"""Network addresses of this machine: how other nodes reach it, and which process holds a port."""

import contextlib
import os
import socket
from ipaddress import IPv6Address, ip_address
from itertools import pairwise
from pathlib import Path

from agiledart_transport.connecting import format_address

WILDCARDS = ("0.0.0.0", "::", "")


def outbound_address(towards: str = "192.0.2.1") -> str:
    """Return the address that this machine would use towards another one. Nothing is sent. Loopback when there is no network."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((towards, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def own_addresses() -> list[str]:
    """Return the addresses of this machine, from the kernel; those that reach other machines first."""
    addresses = {}
    for table, label in (("/proc/net/fib_trie", "/32 host LOCAL"), ("/proc/net/if_inet6", "")):
        with contextlib.suppress(OSError):
            lines = Path(table).read_text().splitlines()
            for before, line in pairwise(["", *lines]):
                if label and label in line:
                    addresses[before.rpartition("-- ")[2].strip()] = True
                elif not label:
                    addresses[str(IPv6Address(bytes.fromhex(line.split()[0])))] = True
    return sorted(addresses, key=lambda text: (ip_address(text).is_loopback, ip_address(text).version, text))


def not_own_address_text(host: str, port: int) -> str:
    """Describe the error for a listening address that is not of this machine."""
    mine = ", ".join(own_addresses()) or "none was found"
    return (
        f"{host} is not an address of this machine. Its addresses: {mine}. "
        f"Give --listen one of them, for example {format_address(outbound_address(), port)}."
    )


def process_on_port(port: int) -> str:
    """Return `pid 812, agiledart agent` of the process that listens on a TCP port, or "" when that cannot be found out."""
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
                program = "agiledart agent" if any("agiledart" in word for word in words) else Path(words[0]).name
                return f"pid {pid}, {program}"
    return ""
