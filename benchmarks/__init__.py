"""Figures of this machine: run one with `make bench`. Ratios against a limit measured in the same run, never a gate."""

import os

os.environ.setdefault("AGILEDART_AGENT__ALLOW_ROOT", "true")  # agents of a measurement run as whoever measures
