"""Tests that run the documentation's examples."""
