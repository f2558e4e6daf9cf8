"""Sink `influx:`: points in InfluxDB's line protocol over HTTP."""
