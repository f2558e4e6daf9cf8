"""The machine under this agent: agents on one machine die together, so copies of one thing go to others."""

import socket
from hashlib import blake2b
from pathlib import Path

MACHINE_ID = Path("/etc/machine-id")
MAX_NAME = 64


def machine_name(machine_id: Path = MACHINE_ID, host_name: str = "") -> str:
    """The same for all agents of one machine, another one for others: `pi1-3f9a1c22`.

    The host's name alone will not do, boards are often called alike; nor the installation's number, cards are copied. That
    number is hashed, because nobody else has business with it. Containers have names of their own and are taken for machines.
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
