"""HTTP: rows that are pushed to us, webhooks, and InfluxDB's line protocol. The standard library is all it takes."""
