"""A real query over a topic of Kafka that counts its values, with Spark's connector from Maven Central."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.support.kafka import VERSION, Broker
from tests.support.maven import jars

CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
    f"org.apache.kafka:kafka-clients:{VERSION}",
    "org.apache.commons:commons-pool2:2.13.1",
)
"""The newest on Maven Central; it runs with the Spark of the tests, which is one release ahead. The rest of what it
needs Spark has already."""
A_BATCH = 40


def with_connector(session: Any) -> Any:
    """The session, whose queries can read Kafka now."""
    for jar in jars(*CONNECTOR, alone=True):
        session.sql(f"ADD JAR '{jar}'")
    return session


def go_on(
    session: Any, broker: Broker, topic: str, checkpoint: Path, *, a_batch: int = A_BATCH, **options: str
) -> dict[int, Counter[str]]:
    """Runs the query until it has read what is there, from where its checkpoint stands: the values that came, by batch,
    each as often as it came. Its state is the count of each value."""
    settings = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(a_batch), **options}
    stream = session.readStream.format("kafka").option("kafka.bootstrap.servers", broker.address)
    stream = stream.option("subscribe", topic).options(**settings).load()
    seen: dict[int, Counter[str]] = {}

    def sink(frame: Any, batch: int) -> None:
        seen[batch] = Counter({row["value"]: row["count"] for row in frame.collect()})

    writer = stream.selectExpr("cast(value as string) value").groupBy("value").count().writeStream
    writer = writer.foreachBatch(sink).outputMode("update").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return seen
