"""`abs doctor` of a place in a bucket: names are created once there, the server's clock is read, nothing stays."""

from __future__ import annotations

import pytest

from formats.storage import open_writable
from tests.support.commands import answer_of


def test_a_bucket_is_a_place_for_a_store(moto_bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = answer_of("doctor", capsys, moto_bucket)
    verdicts = {check["name"]: check["verdict"] for check in answer["checks"]}
    assert [verdicts[name] for name in ("store", "create-only", "clock")] == ["ok"] * 3
    assert not open_writable(moto_bucket).inventory()
