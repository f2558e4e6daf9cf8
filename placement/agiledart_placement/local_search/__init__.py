"""Strategies of Ecker et al.: hill climbing, the ant system, and both one after the other; for any objective."""
