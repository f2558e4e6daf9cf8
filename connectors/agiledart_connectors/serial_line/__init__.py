"""Source `serial:` (extra `[industry]`): lines over a serial line, with pyserial."""
