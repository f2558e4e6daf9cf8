"""The console script's first lines: Ctrl-C while modules are imported ends the process without a traceback."""

import signal


def main() -> None:
    """Run the command line; until it takes over, Ctrl-C has the system's own effect."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from agiledart_cli.main import main as run

    run()
