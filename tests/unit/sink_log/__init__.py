"""Tests of agiledart_executor.sink_log and of its connector."""
