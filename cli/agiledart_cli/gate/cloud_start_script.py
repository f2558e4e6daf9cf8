"""Script that a leased machine runs at its start: it joins the mesh as an agent, and switches itself off when the agent ends."""

from shlex import quote

import msgspec

from agiledart_cli.gate.start_data import StartData

SETUP_SECONDS = 1_200
"""Time for the user's commands that install AgileDART; then the machine switches itself off."""


def start_script(data: StartData, host_name: str, capacity: int, setup: str, id_command: str) -> str:
    """Return a shell script. Its only secret is the join token with one use.

    Args:
        setup: the user's commands, which install `agiledart` where the image has none.
        id_command: prints the id of the machine at its provider.
    """
    lease = msgspec.json.encode({**data.lease, "host_id": "@HOST@"}).decode()
    labels = "".join(f" --label {quote(label)}" for label in filter(None, data.labels.split(",")))
    zone = f" --zone {quote(data.zone)}" if data.zone else ""
    return f"""\
#!/bin/sh
# Machine leased by an AgileDART gate. It switches itself off when its agent ends.
set -eu
trap 'poweroff' EXIT
umask 077
folder=/var/lib/agiledart-lease
mkdir -p "$folder/state"
printf %s {quote(data.token)} > "$folder/token"
host=$({id_command} || true)
printf %s {quote(lease)} | sed "s/@HOST@/$host/" > "$folder/lease.json"
cat > "$folder/setup" <<'END_OF_SETUP'
{setup}
END_OF_SETUP
timeout {SETUP_SECONDS} sh -e "$folder/setup"
id agiledart > /dev/null 2>&1 || useradd --system --home-dir "$folder" agiledart
chown -R agiledart "$folder"
runuser -u agiledart -- env AGILEDART_AGENT__LEASE_FILE="$folder/lease.json" agiledart agent \\
  --state-dir "$folder/state" --name {quote(host_name[-64:])} --listen 0.0.0.0:7400 --capacity {capacity} \\
  --join "@$folder/token"{zone}{labels}
"""
