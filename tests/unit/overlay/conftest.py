"""Invariants of a machine are checked after each step of every test here."""

from agiledart_overlay.overlay_machine import OverlayMachine
from tests.machine_checks import judged_at_each_step

judged = judged_at_each_step(OverlayMachine)
