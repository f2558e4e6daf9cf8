"""Source `tcp:`: lines over a plain TCP connection."""
