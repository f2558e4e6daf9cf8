"""Tests of agiledart_sink_log and of its connector."""
