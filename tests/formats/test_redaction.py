"""The rule about credentials in locations, and how messages are shown without them."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.redaction import Credentials, Location, find_credentials, redact, redact_error

USER, COLON, QUERY, FRAGMENT = Credentials


@pytest.mark.parametrize(("location", "part", "shown"), [
    ("s3://KEY:SECRET@b/x", USER, "s3://…@b/x"),
    ("s3://KEY:SE/CR+ET@b/x", USER, "s3://…@b/x"),
    ("s3://KEY:SE@CRET@b/x", USER, "s3://…@b/x"),
    ("s3://KEY:SECRET/x", COLON, "s3://KEY:…/x"),
    ("s3:/KEY:SECRET@b/x", USER, "s3:/…@b/x"),
    ("s3://KEY%3ASECRET%40b/x", USER, "s3://:…/x"),
    ("https://u:SE?C#RET@h/x", USER, "https://…@h/x"),
    ("https://token@h/x", USER, "https://…@h/x"),
    ("abfss://c:SECRET@acct/x", USER, "abfss://…@acct/x"),
    ("abfs://c@acct/x?sv=1&sig=SECRET", QUERY, "abfs://c@acct/x?sv=…&sig=…"),
    ("https://h/x#token=SECRET", FRAGMENT, "https://h/x#token=…"),
    ("k8s://https://u:SECRET@h:443", USER, "k8s://https://…@h:443"),
    ("jdbc:postgresql://u:SECRET@h/db", USER, "jdbc:postgresql://…@h/db"),
    ("u:SECRET@h:1", USER, "…@h:1"),
    ("h/x?sig=SECRET", QUERY, "h/x?sig=SECRET"),
])  # fmt: skip
def test_credentials_are_found_and_hidden(location: str, part: Credentials, shown: str) -> None:
    assert find_credentials(location) is part
    assert redact(location) == shown


@pytest.mark.parametrize("location", [
    "store", "data/a?b#c.jsonl", "a b@c", "store@7", "/mnt/12:30@x/store", "s3://b/store", "s3://b/store@7", "s3://b/a@b/c",
    "abfs://c@acct.dfs.core.windows.net/x", "wasbs://c@acct.blob.core.windows.net/x", "az://c/x", "hdfs:///user@realm/x",
    "hdfs://name-node:8020/x", "webhdfs://[::1]:9870/x", "spark://h1:7077,h2:7077", "k8s://https://h:443", "yarn",
    "local[*]", "file:///data/a#b", "sqlite:////data/catalog.db", "http://127.0.0.1:9000", "sqlite:///C:/data/x",
])  # fmt: skip
def test_a_location_without_credentials_stays_as_it_is(location: str) -> None:
    assert find_credentials(location) is None
    assert redact(location) == location


def test_a_question_mark_in_a_pattern_is_no_query() -> None:
    pattern = "s3://b/part-?.jsonl"
    assert find_credentials(pattern, Location.GLOB) is None
    assert find_credentials(pattern) is QUERY
    assert find_credentials("s3://b/x?sig=SECRET", Location.GLOB) is QUERY
    assert redact(pattern) == pattern


@pytest.mark.parametrize(("brokers", "part"), [
    ("h:1,u:SECRET@h:2", USER), ("h:1?x", QUERY), ("h:1#x", FRAGMENT), ("h:1,SASL_SSL://h:2,[::1]:3", None),
])  # fmt: skip
def test_brokers_are_hosts_and_ports_alone(brokers: str, part: Credentials | None) -> None:
    assert find_credentials(brokers, Location.BROKERS) is part


def test_a_name_may_have_signs_that_a_location_may_not() -> None:
    assert find_credentials("a:b@c?d=e", Location.NAME) is None
    assert find_credentials("postgresql://u:SECRET@h/db", Location.NAME) is USER


@pytest.mark.parametrize("text", [
    "hint: abs inspect s3://bucket@7 and store@7", "(https://example.org/a): gone", "job.yaml:7:12: no such path",
    "a:b@7", "see https://example.org/x.", "no 's3://b@latest'",
])  # fmt: skip
def test_a_message_without_credentials_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


def test_a_message_keeps_what_is_around_a_uri() -> None:
    message = "error (https://u:SECRET@h:1/x?comp=list&sig=SECRET==): reset; u:SECRET@h:1/bootstrap: refused"
    assert redact(message) == "error (https://…@h:1/x?comp=…&sig=…): reset; …@h:1/bootstrap: refused"


def test_an_error_of_a_client_is_its_first_line_without_values_of_secrets() -> None:
    error = ValueError("Bearer abcdefghij0123456789, password=SECRET token: SECRET\nsecond line")
    assert redact_error(error) == "Bearer …, password=… token: …"
    assert redact_error(ValueError()) == "ValueError"
    assert redact_error(ValueError("password authentication failed")) == "password authentication failed"


@given(st.text(alphabet='s3:/@?=&#\\"u{}. \n', max_size=40), st.text(alphabet='\\"@:/?=x', max_size=20))
def test_text_in_json_stays_json(before: str, after: str) -> None:
    document = json.dumps({"message": f"{before}s3://u:SECRET@h/x?sig=y{after}", "other": f"u:{after}@h"})
    assert json.loads(redact(document)).keys() == {"message", "other"}


@pytest.mark.parametrize("text", [
    "a:/", "a://", "u:", "a", "x@", "?=a", "u:S", ":@", "secret ", ")", "=", "%40", "\\", "a://u:",
], ids=str)  # fmt: skip
def test_hostile_text_takes_time_in_proportion_to_its_length(text: str) -> None:
    seconds = []
    for count in (20_000, 200_000):
        hostile = f"http://{text * count}@h"
        begin = time.process_time()
        redact_error(ValueError(hostile))
        find_credentials(hostile)
        seconds.append(time.process_time() - begin)
    assert seconds[1] < max(0.5, 40 * seconds[0])
