"""NEXMark's queries in Flink's SQL, as https://github.com/nexmark/nexmark has them, over files and into files."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from tests.support.flink.cluster import OPENED

RAN = re.compile(rb"ran for (\d+) ms, (\d+) of processor")

TABLES = {
    "person": "id BIGINT, name STRING, email STRING, credit_card STRING, city STRING, state STRING, "
    "date_time TIMESTAMP(3), extra STRING",
    "auction": "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, "
    "date_time TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP(3), extra STRING",
}
BID = "auction BIGINT, bidder BIGINT, price BIGINT, date_time TIMESTAMP(3), extra STRING"

QUERIES = {
    "q0": (BID, "SELECT auction, bidder, price, date_time, extra FROM bid"),
    "q1": (
        BID.replace("price BIGINT", "price DECIMAL(23, 3)"),
        "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid",
    ),
    "q2": ("auction BIGINT, price BIGINT", "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0"),
    "q3": (
        "name STRING, city STRING, state STRING, id BIGINT",
        "SELECT P.name, P.city, P.state, A.id FROM auction AS A INNER JOIN person AS P ON A.seller = P.id "
        "WHERE A.category = 10 AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA')",
    ),
    "q4": (
        "",
        "SELECT Q.category, AVG(CAST(Q.final AS DOUBLE)) AS average FROM ("
        "SELECT MAX(B.price) AS final, A.category FROM auction A, bid B "
        "WHERE A.id = B.auction AND B.date_time BETWEEN A.date_time AND A.expires GROUP BY A.id, A.category"
        ") Q GROUP BY Q.category",
    ),
    "q5": (
        "window_start TIMESTAMP(3), window_end TIMESTAMP(3), auction BIGINT, num BIGINT",
        "SELECT A.window_start, A.window_end, A.auction, A.num FROM ("
        "SELECT auction, count(*) AS num, window_start, window_end FROM "
        "TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) "
        "GROUP BY auction, window_start, window_end) AS A JOIN ("
        "SELECT max(C.num) AS maxn, C.window_start, C.window_end FROM ("
        "SELECT count(*) AS num, window_start, window_end FROM "
        "TABLE(HOP(TABLE bid, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND)) "
        "GROUP BY auction, window_start, window_end) AS C GROUP BY C.window_start, C.window_end) AS M "
        "ON A.window_start = M.window_start AND A.window_end = M.window_end AND A.num >= M.maxn",
    ),
    "q7": (
        BID,
        "SELECT B.auction, B.bidder, B.price, B.date_time, B.extra FROM bid B JOIN ("
        "SELECT MAX(price) AS maxprice, window_end AS date_time FROM "
        "TABLE(TUMBLE(TABLE bid, DESCRIPTOR(date_time), INTERVAL '10' SECOND)) GROUP BY window_start, window_end) B1 "
        "ON B.price = B1.maxprice WHERE B.date_time BETWEEN B1.date_time - INTERVAL '10' SECOND AND B1.date_time",
    ),
    "q8": (
        "id BIGINT, name STRING, window_start TIMESTAMP(3)",
        "SELECT P.id, P.name, P.window_start FROM ("
        "SELECT id, name, window_start, window_end FROM "
        "TABLE(TUMBLE(TABLE person, DESCRIPTOR(date_time), INTERVAL '10' SECOND)) "
        "GROUP BY id, name, window_start, window_end) P JOIN ("
        "SELECT seller, window_start, window_end FROM "
        "TABLE(TUMBLE(TABLE auction, DESCRIPTOR(date_time), INTERVAL '10' SECOND)) "
        "GROUP BY seller, window_start, window_end) A "
        "ON P.id = A.seller AND P.window_start = A.window_start AND P.window_end = A.window_end",
    ),
}
"""The columns of its answer, none where that changes as events come, and the query."""


def run(
    class_path: str, query: str, events: Path, out: Path, cores: int, interval: float, backend: str
) -> tuple[float, float]:
    """Seconds of a run, and of processor; RuntimeError with what Flink says."""
    columns, select = QUERIES[query]
    statements = [
        f"CREATE TABLE {table} ({of}, WATERMARK FOR date_time AS date_time) WITH ('connector' = 'filesystem', "
        f"'path' = '{(events / table).as_uri()}', 'format' = 'parquet', 'parquet.utc-timezone' = 'true')"
        for table, of in TABLES.items()
    ]
    if columns:
        statements.append(
            f"CREATE TABLE shown ({columns}) WITH ('connector' = 'filesystem', 'path' = '{out.as_uri()}', "
            "'format' = 'json', 'sink.rolling-policy.rollover-interval' = '1s', "
            "'sink.rolling-policy.check-interval' = '1s')"
        )
        select = f"INSERT INTO shown {select}"
    script, work = out.parent / "query.sql", out.parent / "flink"
    script.write_text(";\n".join([*statements, select]))
    work.mkdir()
    options = {
        "execution.checkpointing.interval": f"{round(interval * 1000)}ms",
        "execution.checkpointing.storage": "filesystem",
        "execution.checkpointing.dir": (work / "checkpoints").as_uri(),
        "execution.checkpointing.num-retained": "2",
        "state.backend.type": backend,
        "parallelism.default": str(cores),
        "io.tmp.dirs": str(work),
    }
    opened = [f"--add-opens={package}=ALL-UNNAMED" for package in OPENED]
    command = ["java", "-Xmx3g", *opened, f"-XX:ActiveProcessorCount={cores}", "-cp", class_path, "NexmarkJob"]
    command += [str(script), str(cores), "-" if columns else out.as_uri()]
    command += [f"{key}={value}" for key, value in options.items()]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    shutil.rmtree(work, ignore_errors=True)
    ran = RAN.search(done.stdout)
    if ran is None:
        raise RuntimeError(f"{query} on Flink has failed: {done.stdout[-4000:].decode(errors='replace')}")
    return int(ran[1]) / 1000, int(ran[2]) / 1000
