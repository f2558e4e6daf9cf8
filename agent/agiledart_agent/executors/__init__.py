"""The agent's side of its executor processes: starting, watching, asking and tapping them.

It never imports the executor's code.
"""
