"""The object stores that tests use, by the names which stand in the tests' own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.support.objects.google import google, testbench
from tests.support.objects.hdfs import minicluster
from tests.support.objects.rgw import rgw
from tests.support.objects.servers import ObjectServer, azurite, moto

SERVERS: dict[str, Callable[[], AbstractContextManager[ObjectServer]]] = {
    "S3 by moto": moto,
    "Azure by Azurite": azurite,
    "Google by a server in memory": google,
    "Google by its testbench": testbench,
    "S3 by Ceph RGW": rgw,
    "HDFS": minicluster,
}
