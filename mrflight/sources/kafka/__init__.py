"""Topics of Apache Kafka as inputs."""
