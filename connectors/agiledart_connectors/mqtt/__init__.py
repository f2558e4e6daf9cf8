"""MQTT 5 and 3.1.1 with paho-mqtt (extra `[mqtt]`): where a broker is, the link to one, a source and a sink."""
