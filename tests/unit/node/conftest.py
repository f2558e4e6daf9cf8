"""Invariants of a machine are checked after each step of every test here."""

from agiledart_node.node import Node
from tests.machine_checks import judged_at_each_step

judged = judged_at_each_step(Node)
