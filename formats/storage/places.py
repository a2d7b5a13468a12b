"""How places are called: paths of this machine, and URIs under one name whatever a client calls them."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from formats.errors import FormatError
from formats.redaction import refuse_user_information

SCHEMES = "s3://, gs://, abfs://, abfss://, az://, hdfs://, webhdfs://, file://"
ALIASES = (
    (re.compile(r"^s3[anp]://"), "s3://"),
    (re.compile(r"^wasb(s?)://([^@/]+)@([^/]+)\.blob\."), r"abfs\1://\2@\3.dfs."),
)
"""Hadoop's names of stores, as Spark and Flink write them, and what they are called here."""


def common_name(uri: str) -> str:
    """A URI under the name that a store has here, whatever Hadoop's client for it is called."""
    for pattern, name in ALIASES:
        uri = pattern.sub(name, uri)
    return uri


class Bucket(NamedTuple):
    """The bucket of a URI, and the place in it.

    kind: s3, gs or az.
    account: of Azure; empty if the environment names it.
    """

    kind: str
    name: str
    prefix: str
    account: str = ""


_KINDS = {"s3": "s3", "gs": "gs", "az": "az", "abfs": "az", "abfss": "az"}


def is_object_store(uri: str) -> bool:
    """Tell whether a URI, under any of its names, is of a kind of store that `ObjectStorage` knows."""
    return common_name(uri).partition("://")[0] in _KINDS


def bucket_of(uri: str) -> Bucket:
    """Return the bucket of a URI and the place in it. Raises FormatError if it has none, or contains a secret."""
    scheme, _, rest = common_name(uri).partition("://")
    place, _, prefix = rest.partition("/")
    kind = _KINDS[scheme]
    refuse_user_information(uri, "the URI of a bucket")
    name, _, host = place.partition("@")
    if not name:
        raise FormatError("names no bucket", path=uri, hint="give the bucket and the path in it")
    return Bucket(kind, name, prefix.strip("/"), host.partition(".")[0])


def local_name(path: str) -> str:
    """The path that a URI of this machine names: file:///a, and file:/a as Java writes it; others as they are."""
    return re.sub("^file:(//(?=/)|(?=/(?!/)))", "", path)


def absolute(path: str) -> str:
    """The same place from every working directory; a URI as it is."""
    path = local_name(path)
    return path if "://" in path else os.path.abspath(path)


def real_place(path: str) -> str:
    """A place under the one name that all its names have: links followed, a URI as stores are called here."""
    path = local_name(path)
    return common_name(path).rstrip("/") if "://" in path else os.path.realpath(path)


def no_directory(path: str) -> str | None:
    """Why no directory is or can be made at a local path: what is in the way; None if nothing is."""
    place = os.path.abspath(path)
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if os.path.isdir(place):
        return None
    thing = "a link that leads nowhere" if not os.path.exists(place) else "a file"
    return f"{'it' if place == os.path.abspath(path) else place} is {thing}"
