"""The real world of a node: daemon, driver, links to peers, executor processes, control API, settings and identity.

`agent.py` joins the parts on one event loop; `daemon.py` starts and ends it; `driver.py` runs the sans-IO `Node` and is
the only reader of clocks for it. This package may import everything below the command line; nothing below imports it.
It re-exports nothing, so a tool that needs one module loads one module.
"""
