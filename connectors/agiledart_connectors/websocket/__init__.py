"""WebSocket with websockets (extra `[websocket]`): a source and a sink that call a server."""
