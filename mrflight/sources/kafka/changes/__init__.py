"""Change events of Debezium: how what is in their envelopes becomes rows."""
