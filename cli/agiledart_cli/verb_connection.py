"""Connection of a command to its agent; a message says which agent is used when the user gives none."""

from agiledart_cli.output import print_message
from agiledart_control import control_client
from agiledart_control.control_client import ControlClient


def connect(agent: str | None, identity: str | None = None) -> ControlClient:
    """Return a client of the agent that `--agent` names, or of the default agent; errors as of `control_client.connect`."""
    return control_client.connect(agent, identity, print_message)
