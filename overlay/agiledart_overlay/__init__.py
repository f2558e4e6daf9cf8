"""Pastry: who is in the ring, and which way to a key.

Everything here is protocol code without I/O: `OverlayMachine.step(event, now)` returns effects, a driver carries them out.
The machine joins a ring, keeps leaf set, routing table and neighbourhood set, detects failures, routes messages, and keeps
small named records at their keys. Import from the modules (`agiledart_overlay.overlay_machine`, `.events`, `.effects`,
`.messages`,
`.config`); nothing is re-exported here. May import `agiledart_kernel` and nothing else of AgileDart.

Source: [Pastry]; [AgileDART] §III; the rules and figures are those of the project's overlay specification.
"""
