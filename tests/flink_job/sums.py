"""A small keyed job of Flink SQL: counts and sums of a sequence by its remainder, printed as they change.

python sums.py CHECKPOINTS BACKEND ROWS-PER-SECOND [OPTION=VALUE ...]: to be run by a Python that has apache-flink.
"""

import sys

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

checkpoints, backend, pace, *options = sys.argv[1:]
config = Configuration()
for key, value in {
    "rest.bind-address": "127.0.0.1",
    "rest.address": "127.0.0.1",
    "parallelism.default": "2",
    "pipeline.max-parallelism": "16",
    "state.backend.type": backend,
    "execution.checkpointing.incremental": "true",
    "execution.checkpointing.interval": "300ms",
    "execution.checkpointing.dir": f"file://{checkpoints}",
    "execution.checkpointing.num-retained": "3",
    "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
    "execution.checkpointing.data-inline-threshold": "0",
    **dict(option.split("=", 1) for option in options),
}.items():
    config.set_string(key, value)
tables = TableEnvironment.create(
    EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(config).build()
)
tables.execute_sql(
    f"CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '{pace}',"
    " 'fields.n.kind' = 'sequence', 'fields.n.start' = '0', 'fields.n.end' = '3999')"
)
tables.execute_sql("CREATE TABLE sums (k BIGINT, c BIGINT, s BIGINT) WITH ('connector' = 'print')")
tables.execute_sql("INSERT INTO sums SELECT n % 7, COUNT(*), SUM(n) FROM numbers GROUP BY n % 7").wait()
