"""Rounds of processes that put one name at once: how many of them are told that it is theirs, and when it is listed.

`python -m tests.bench.objects.bench_racing --server rgw --rounds 200 --publishers 20`
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Mapping
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest

from formats.storage import open_writable
from tests.support.objects.fixtures import SERVERS, use
from tests.support.objects.places import bucket_place

NAMES = {"moto": "S3 by moto", "azurite": "Azure by Azurite", "rgw": "S3 by Ceph RGW", "hdfs": "HDFS"}


def publish(
    publisher: int, rounds: int, root: str, environment: Mapping[str, str], barrier: Barrier, won: Any
) -> None:
    """One publisher: its number goes into `won` for each round that it has won."""
    os.environ.update(environment)
    storage = open_writable(root)
    for number in range(rounds):
        barrier.wait()
        with contextlib.suppress(FileExistsError):
            storage.put(f"outcome/{number:010d}.json", f"{publisher}".encode() * 500)
            won.put((number, publisher))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="moto", choices=tuple(NAMES))
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--publishers", type=int, default=20)
    given = parser.parse_args()
    name = NAMES[given.server]
    with SERVERS[name]() as server:
        place = bucket_place(use(server, pytest.MonkeyPatch()))
        context = multiprocessing.get_context("spawn")  # a client does not survive a fork
        barrier, won = context.Barrier(given.publishers), context.Queue()
        began = time.monotonic()
        processes = [
            context.Process(
                target=publish, args=(n, given.rounds, place.root, dict(place.environment), barrier, won)
            )
            for n in range(given.publishers)
        ]
        for process in processes:
            process.start()
        winners = [won.get(timeout=600) for _ in range(given.rounds)]
        for process in processes:
            process.join()
        while not won.empty():
            winners.append(won.get())
        seconds = time.monotonic() - began
        storage = place.open()
        whole = sum(
            storage.read(f"outcome/{number:010d}.json") == f"{publisher}".encode() * 500
            for number, publisher in winners
        )
        listed = len(storage.list("outcome"))
    a_round = Counter(Counter(number for number, _ in winners).values())
    print(f"{name}: {given.rounds} rounds of {given.publishers} processes, {seconds:.1f} s")
    print(f"winners a round: {dict(a_round)}; the winner's bytes are there: {whole}; listed: {listed}")
    assert a_round == {1: given.rounds}, a_round
    assert whole == listed == given.rounds


if __name__ == "__main__":
    main()
