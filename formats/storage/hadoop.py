"""What Hadoop's own configuration says: its site files, and where the NameNodes of an HDFS answer over HTTP.

    webhdfs://HOST:PORT/path    the NameNode's HTTP address itself; port 9870 unless it is given
    hdfs://HOST:PORT/path       the address for Hadoop's own protocol: its HTTP address is `dfs.namenode.http-address`
                                of the configuration that names it, or port 9870 of that host
    hdfs://NAMESERVICE/path     each NameNode of `dfs.ha.namenodes.NAMESERVICE`
    hdfs:///path                that of `fs.defaultFS`
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from formats.errors import FormatError

PORT = 9870
"""Where a NameNode answers over HTTP unless it is configured otherwise."""
SCHEMES = ("hdfs", "webhdfs")
OF_HDFS = ("fs.defaultFS", "dfs.nameservices", "dfs.ha.namenodes.", "dfs.namenode.http-address", "dfs.namenode.rpc-")
"""How the names begin of what is used for HDFS."""
OF_S3 = "fs.s3a."
"""What is used for S3, under this or any longer name."""
SITE_FILES = ("core-site.xml", "hdfs-site.xml")
LARGEST = 16 << 20


OF_OPTIONS = "abs."
"""What was given on the command line goes with these to workers, so under names of our own."""


def is_used(name: str) -> bool:
    """Whether a setting of Hadoop's, also as Spark calls it, says anything about where stores lie."""
    return OF_S3 in name or name.startswith(OF_OPTIONS) or name.removeprefix("spark.hadoop.").startswith(OF_HDFS)


def site_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """What is used of the files of HADOOP_CONF_DIR; empty where it is not set, or has none.

    FormatError for one that is no XML.
    """
    folder = environment.get("HADOOP_CONF_DIR")
    if not folder:
        return {}
    from xml.etree import ElementTree

    settings: dict[str, str] = {}
    for name in SITE_FILES:
        path = os.path.join(folder, name)
        try:
            with open(path, "rb") as file:
                root = ElementTree.fromstring(file.read(LARGEST))
        except FileNotFoundError:
            continue
        except ElementTree.ParseError as error:
            raise FormatError(f"is not a Hadoop configuration file: {error}", path=path,
                              hint="HADOOP_CONF_DIR names its folder") from None  # fmt: skip
        for entry in root.iter("property"):
            key, value = (entry.findtext("name") or "").strip(), (entry.findtext("value") or "").strip()
            if is_used(key) and "${" not in value:
                settings[key] = value
    return settings


def name_nodes(scheme: str, authority: str, configuration: Mapping[str, str]) -> tuple[tuple[str, int], ...]:
    """Where the NameNodes behind a URI answer over HTTP, each as (host, port); several of which one is active.

    FormatError for an authority that is no address.
    """
    plain = {name.removeprefix("spark.hadoop."): value for name, value in configuration.items()}
    default = plain.get("fs.defaultFS", "")
    if not authority:
        scheme, _, rest = default.partition("://")
        authority = rest.partition("/")[0]
        if scheme not in SCHEMES or not authority:
            raise FormatError(
                "names no NameNode", path=f"{scheme or 'hdfs'}:///",
                hint="write hdfs://HOST/path, or let HADOOP_CONF_DIR name a configuration with fs.defaultFS",
            )  # fmt: skip
    if authority in [name.strip() for name in plain.get("dfs.nameservices", "").split(",")]:
        return tuple(_of_nameservice(authority, plain))
    if scheme == "webhdfs":
        return (_address(authority),)
    host, _ = _address(authority)
    itself = plain.get("dfs.namenode.rpc-address") or default.partition("://")[2].partition("/")[0]
    if authority == itself and (configured := plain.get("dfs.namenode.http-address")):
        return (_address(configured, host),)
    return ((host, PORT),)


def _of_nameservice(name: str, plain: Mapping[str, str]) -> list[tuple[str, int]]:
    members = [one.strip() for one in plain.get(f"dfs.ha.namenodes.{name}", "").split(",") if one.strip()]
    nodes = []
    for ending in [f".{name}.{member}" for member in members] or [f".{name}"]:
        rpc = plain.get(f"dfs.namenode.rpc-address{ending}", "")
        http = plain.get(f"dfs.namenode.http-address{ending}", "")
        if http or rpc:
            host = _address(rpc)[0] if rpc else ""
            nodes.append(_address(http, host) if http else (host, PORT))
    if not nodes:
        raise FormatError(
            f"has no NameNode for the nameservice {name}", path=f"hdfs://{name}",
            hint=f"dfs.namenode.http-address.{name}.NAMENODE in hdfs-site.xml says where one answers",
        )  # fmt: skip
    return nodes


def _address(text: str, host: str = "") -> tuple[str, int]:
    """HOST or HOST:PORT; `host` in place of one that means every address of that machine."""
    name, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, port = text, str(PORT)
    if not name or not port.isascii() or not port.isdigit() or int(port) > 65535 or "@" in name:
        raise FormatError(f"has {text!r} for the address of a NameNode", hint="HOST:PORT is one")
    name = name.strip("[]")
    return (host if host and name in ("0.0.0.0", "::") else name), int(port)
