"""Bytes of files: lines of one, of many, of one that grows; gzip; files that are whole when they get their names."""
