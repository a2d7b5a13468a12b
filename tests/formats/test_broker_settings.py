"""Which settings of librdkafka are passed on, and from which file."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

from abscli.engine.brokers import settings_of
from abscli.engine.errors import UsageError
from formats.brokers import BadSetting, Brokers, settings
from formats.job.model import Kind, Operator

DANGEROUS = ["plugin.library.paths", "sasl.kerberos.kinit.cmd", "ssl.engine.location", "ssl.providers", "debug",
             "bootstrap.servers", "metadata.broker.list", "transactional.id", "isolation.level", "interceptors",
             "enable.auto.commit", "test.mock.num.brokers", "opaque", "statistics.interval.ms"]  # fmt: skip
HARMLESS = ["security.protocol", "sasl.mechanisms", "sasl.username", "sasl.password", "ssl.ca.location",
            "ssl.certificate.location", "ssl.key.password", "socket.timeout.ms", "client.id", "group.id"]  # fmt: skip


@pytest.mark.parametrize("name", DANGEROUS)
def test_a_setting_that_loads_code_or_names_other_brokers_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text(f"client.id=me\n{name}=/tmp/evil.so\n")
    with pytest.raises(BadSetting) as refused:
        settings(file)
    assert name in str(refused.value)
    assert "evil" not in str(refused.value)
    with pytest.raises(BadSetting):
        Brokers("127.0.0.1:1", {name: "/tmp/evil.so"})


def test_settings_of_security_sizes_and_times_are_passed_on(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("".join(f"{name}=x\n" for name in HARMLESS))
    assert settings(file) == dict.fromkeys(HARMLESS, "x")


@pytest.mark.parametrize("config", ["../client.properties", "link.properties", "/etc/passwd"])
def test_a_settings_file_outside_of_the_folder_of_the_job_is_refused(tmp_path: Path, config: str) -> None:
    """A job file with brokers of its own would have the password in it sent to them."""
    (tmp_path / "client.properties").write_text("sasl.password=secret\n")
    job = tmp_path / "job"
    job.mkdir()
    (job / "link.properties").symlink_to(tmp_path / "client.properties")
    options = {"type": "kafka", "brokers": "127.0.0.1:1", "topic": "t", "config": config}
    with pytest.raises(UsageError, match="outside the folder of the job file"):
        settings_of(Operator("out", Kind.SINK, 1, 8, connector=options), str(job))


def test_a_settings_file_in_the_folder_of_the_job_is_read(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "client.properties").write_text("client.id=me\n")
    options = {"type": "kafka", "brokers": "127.0.0.1:1", "topic": "t", "config": "conf/client.properties"}
    assert settings_of(Operator("out", Kind.SINK, 1, 8, connector=options), str(tmp_path)) == {"client.id": "me"}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_client_that_is_not_used_any_more_leaves_no_thread_and_no_descriptor() -> None:
    def threads_and_descriptors() -> tuple[int, int]:
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    Brokers("127.0.0.1:1", {})
    gc.collect()
    before = threads_and_descriptors()
    gc.disable()  # it must not depend on when the garbage collector runs
    try:
        for _ in range(10):
            Brokers("127.0.0.1:1", {})
        threads, descriptors = threads_and_descriptors()
    finally:
        gc.enable()
    assert threads <= before[0] + 4  # of the newest client, which may be ending
    assert descriptors <= before[1] + 4
