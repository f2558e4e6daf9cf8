"""Finalising of the files of ended runs, in a process of its own."""
