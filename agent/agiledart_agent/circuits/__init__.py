"""Circuits: leading others to members, and finding ways by others for oneself."""
