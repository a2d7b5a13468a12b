"""A store of version 1, with what it left in its sink, is brought up and goes on: every line is visible once."""

from __future__ import annotations

import pytest

from abscli.engine.errors import UsageError
from formats.native.facts import FORMAT_VERSION
from tests.exactly_once.test_output_checked import output_findings, validated
from tests.support.jobs.lines import Lines


def test_a_resume_brings_a_store_of_version_1_up_and_shows_what_it_had_not_shown(first_version: Lines) -> None:
    first_version.resume(epochs=1)
    assert first_version.store().facts.version == FORMAT_VERSION
    assert not first_version.sink.staged()
    first_version.resume()
    assert first_version.wrong() == {}
    assert output_findings(validated(first_version)) == []


def test_the_other_branch_of_a_store_of_version_1_comes_back_from_where_it_was_set_aside(first_version: Lines) -> None:
    first_version.run(from_epoch=6, epochs=1)
    first_version.run(from_epoch=14, epochs=1)
    first_version.run(from_epoch=5)
    assert first_version.wrong() == {}


def test_a_store_of_version_1_that_was_brought_up_and_then_killed_still_owns_its_sink(
    first_version: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("abscli.engine.attempt.put_attempt", kill)
        with pytest.raises(Killed):
            first_version.resume()
    assert first_version.store().facts.version == FORMAT_VERSION
    first_version.resume()
    assert first_version.wrong() == {}


def test_another_store_does_not_write_the_sink_of_a_store_of_version_1(first_version: Lines) -> None:
    with pytest.raises(UsageError, match="did not write"):
        first_version.run("b")
