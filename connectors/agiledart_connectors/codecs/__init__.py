"""Bytes and texts → typed rows, and back: one module or more a format. Nothing here knows where bytes come from."""
