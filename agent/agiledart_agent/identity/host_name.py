"""Name of the machine under this agent. Agents on one machine fail together, so copies of one thing go to different machines."""

import socket
from hashlib import blake2b
from pathlib import Path

MACHINE_ID = Path("/etc/machine-id")
MAX_NAME = 64


def machine_name(machine_id: Path = MACHINE_ID, host_name: str = "") -> str:
    """Return a name that is equal for all agents of one machine and differs between machines: `pi1-3f9a1c22`.

    The host's name alone is not enough, since boards are often called alike; nor is the installation's number, since
    cards are copied. That number is hashed, because it is private to the machine. Containers have names of their own
    and count as machines.
    """
    name = (host_name or socket.gethostname()).split(".")[0]
    try:
        number = machine_id.read_bytes().strip()
    except OSError:
        number = b""
    if not number:
        return name[:MAX_NAME]
    digest = blake2b(number, digest_size=4, person=b"agiledart-host").hexdigest()
    return f"{name[: MAX_NAME - 1 - len(digest)]}-{digest}"
