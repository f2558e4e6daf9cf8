"""Values over many records: aggregators, running values, panes of windows, sliding and session windows.

The package builds on operators and event time.
"""
