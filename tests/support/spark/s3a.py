"""The streaming word count of `words` with its checkpoint in a bucket, through Hadoop's s3a, in a process of its own.

`python -m tests.support.spark.s3a INPUT CHECKPOINT CONF` prints the last count of each word that its sink was given.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.java import QUICK
from tests.support.maven import jars
from tests.support.objects.servers import ObjectServer

HADOOP = "3.5.0"
"""That of the Spark which is tested."""
ALONE = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP}",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
)
"""Without AWS' whole client, which takes 600 MB and of which s3a needs 16."""
CLIENT = ("software.amazon.awssdk:s3-transfer-manager:2.35.4", "software.amazon.awssdk:sts:2.35.4")
MANAGER = "org.apache.spark:spark-hadoop-cloud_2.13:4.1.2"
"""The newest that there is of what has Spark's manager of checkpoint files for object stores."""
STREAMS = {
    "spark.sql.streaming.checkpointFileManagerClass":
    "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager",
}  # fmt: skip
"""Files are written in their place and appear when they are closed; without it they are renamed, by copy and delete."""


def s3a(server: ObjectServer) -> dict[str, str]:
    """What Hadoop's client is told."""
    return {
        "endpoint": server.environment["AWS_ENDPOINT_URL"], "endpoint.region": "us-east-1",
        "access.key": server.environment["AWS_ACCESS_KEY_ID"],
        "secret.key": server.environment["AWS_SECRET_ACCESS_KEY"],
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "path.style.access": "true", "connection.ssl.enabled": "false", "input.stream.type": "classic",
        "connection.expect.continue": "false",
        # Ceph of Debian 12 refuses an empty file that is signed chunk by chunk, as AWS' client does without TLS.
        "signing-algorithm": "AWS4UnsignedPayloadSignerType",
    }  # fmt: skip


def run(server: ObjectServer, source: Path, checkpoint: str, conf: Mapping[str, str]) -> dict[str, int]:
    """Run the query until its input is read, from where its checkpoint stands; what its sink was given last."""
    _check_version()
    given = {**{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a(server).items()}, **conf}
    given["spark.jars"] = ",".join(map(str, {*jars(*ALONE, MANAGER, alone=True), *jars(*CLIENT)}))
    return in_a_process(source, checkpoint, given, {"AWS_REQUEST_CHECKSUM_CALCULATION": "when_required"})


def in_a_process(
    source: Path, checkpoint: str, given: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, int]:
    """The same by a Spark that is told what is given, with a checkpoint wherever its own clients can write it."""
    command = [sys.executable, "-m", "tests.support.spark.s3a", str(source), checkpoint, json.dumps(given)]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=1800,
        env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return counts


def _check_version() -> None:
    import pyspark

    if not (Path(pyspark.__file__).parent / "jars" / f"hadoop-client-api-{HADOOP}.jar").exists():
        pytest.skip(f"this Spark does not have Hadoop {HADOOP}, which s3a has to be of")


def _main(source: str, checkpoint: str, conf: str) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from abscli.engine.drivers.java import use_java
    from tests.support.spark import words

    use_java()
    own = SparkConf().setMaster("local[1]").set("spark.ui.enabled", "false").setAll(list(json.loads(conf).items()))
    own.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    own.set("spark.driver.extraJavaOptions", " ".join(QUICK)).set("spark.ui.showConsoleProgress", "false")
    own.set("spark.sql.shuffle.partitions", "2").set("spark.sql.streaming.stateStore.maintenanceInterval", "1h")
    context = SparkContext(conf=own)
    seen = words.go_on(SparkSession(context), Path(source), checkpoint)
    context.stop()
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    _main(*sys.argv[1:])
