"""Values over many records: aggregators, running values, panes of windows, sliding and session windows.

It stands on operators and event time.
"""
