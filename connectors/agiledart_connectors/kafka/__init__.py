"""Kafka with aiokafka (extra `[kafka]`): where brokers are, which partitions are read from where, a source and a sink."""
