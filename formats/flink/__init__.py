"""Checkpoints and savepoints of Apache Flink, read without a JVM."""
