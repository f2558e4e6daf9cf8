"""Source `tcp:`: lines over plain TCP connections, dialled or accepted. It knows `codecs` and the options only."""
