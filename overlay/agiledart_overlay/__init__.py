"""Pastry overlay: membership of the ring, and routes to keys.

All code here is protocol code without I/O: `OverlayMachine.step(event, now)` returns effects, and a driver carries them out. The
machine joins a ring, keeps leaf set, routing table and neighbourhood set, detects failures, routes messages, and stores small
named records at their keys. Import from the modules (`agiledart_overlay.overlay_machine`, `.wire.events`, `.wire.effects`,
`.wire.messages`, `.wire.config`); this package re-exports nothing. It may import `agiledart_kernel` and nothing else of
AgileDART.

Source: [Pastry]; [AgileDART] §III; the project's overlay specification gives rules and figures.
"""
