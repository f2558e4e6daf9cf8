"""Parts shared by connectors whose other end may be away: payload and delivery queues, connection health, row ids."""
