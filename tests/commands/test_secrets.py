"""Secrets in URIs and options: each place that a user may put one into refuses it, and no message or file repeats it.

A placement is refused with exit code 2, unless it is where a secret belongs (the environment, a service file, a file of
settings): then the secret is used, and the error of a server that does not answer does not show it.
"""

from __future__ import annotations

import base64
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from abscli.api.jobs import run_job
from abscli.api.store import open_store
from abscli.cli.app import load
from abscli.cli.exits import USAGE
from abscli.cli.main import main
from abscli.cli.overview import COMMANDS
from abscli.engine.postgres.database import Table
from formats.brokers import Brokers, settings
from formats.errors import FormatError, Unreachable
from formats.job.connectors import CONNECTORS
from formats.storage import open_storage, retrying
from tests.support.stores.small import make_store

SECRET = "Zq7XkVw9Jf"
"""Upper case and digits: no digest of a store holds a piece of it."""
PIECES = [SECRET[at : at + 4] for at in range(len(SECRET) - 3)]
AK, SAS = f"s3://AKID:{SECRET}@b/x", f"sv=2024-11-04&sig={SECRET}"


def assert_hidden(text: str) -> None:
    assert [piece for piece in PIECES if piece in text] == []


def assert_not_stored(folder: Path) -> None:
    for file in folder.rglob("*"):
        assert_hidden(str(file.relative_to(folder)))
        if file.is_file():
            assert_hidden(file.read_bytes().decode("latin-1"))


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory of a command; job files are in a folder beside it, since they hold the secret."""
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.jsonl").write_text('{"a": "x"}\n')
    make_store(work / "store")
    monkeypatch.chdir(work)
    yield work
    assert_not_stored(work)


# -- job files --------------------------------------------------------------------------------------------

SOURCE = "{type: jsonl, path: rows.jsonl}"
SINK = "{type: jsonl, path: out}"
URIS = {
    "s3": AK,
    "s3-with-a-slash-in-the-secret": f"s3://AKID:{SECRET[:5]}/{SECRET[5:]}@b/x",
    "s3-without-a-bucket": f"s3://AKID:{SECRET}/x",
    "s3-with-one-slash": f"s3:/AKID:{SECRET}@b/x",
    "s3-encoded": f"s3://AKID%3A{SECRET}%40b/x",
    "s3-with-two-at-signs": f"s3://AKID:{SECRET[:5]}@{SECRET[5:]}@b/x",
    "abfs-with-a-signature": f"abfs://c@acct.dfs.core.windows.net/x?{SAS}",
    "abfss-with-a-password": f"abfss://c:{SECRET}@acct.dfs.core.windows.net/x",
    "wasbs-with-a-signature": f"wasbs://c@acct.blob.core.windows.net/x?{SAS}",
    "https-with-a-signature": f"https://a.blob.core.windows.net/c/x?{SAS}",
    "https-with-a-fragment": f"https://a.example/x#access_token={SECRET}",
    "gs-with-a-name": f"gs://{SECRET}@b/x",
    "webhdfs-with-a-password": f"webhdfs://u:{SECRET}@h:9870/x",
    "a-signature-without-a-scheme": f"a.blob.core.windows.net/c/x?sig={SECRET}",
    "a-password-without-a-scheme": f"u:{SECRET}@h/x",
}


def job(source: str = SOURCE, sink: str = SINK, more: str = "", between: str = "rows") -> str:
    return (
        f"version: 1\njob: secrets\noperators:\n  rows: {{source: {source}}}\n{more}"
        f"  out: {{from: {between}, sink: {sink}}}\n"
    )


def lookup(table: str) -> str:
    return job(more=f"  look: {{from: rows, lookup: {{key: [a], {table}}}}}\n", between="look")


JOBS = {
    **{f"{type}-sink-{name}": job(sink=f'{{type: {type}, path: "{uri}"}}')
       for type in ("jsonl", "delta") for name, uri in URIS.items()},
    **{f"{type}-source-{name}": job(source=f'{{type: {type}, path: "{uri}"}}')
       for type in ("jsonl", "text") for name, uri in URIS.items()},
    **{f"{type}-sink": job(sink=f'{{type: {type}, path: "{AK}"}}') for type in ("csv", "parquet")},
    **{f"{type}-source": job(source=f'{{type: {type}, path: "{AK}"}}') for type in ("csv", "parquet", "arrow")},
    **{f"iceberg-{field}-{name}": job(sink=f'{{type: iceberg, table: a.b, {field}: "{uri}"}}')
       for field in ("uri", "warehouse")
       for name, uri in {
           "user": f"postgresql://u:{SECRET}@h/db", "query": f"https://catalog.example/?token={SECRET}",
           "s3": AK, "fragment": f"https://catalog.example/#{SECRET}",
       }.items()},
    "iceberg-token": job(sink=f"{{type: iceberg, table: a.b, token: {SECRET}}}"),
    "postgres-url": job(sink=f'{{type: postgres, table: t, url: "postgresql://u:{SECRET}@h/db"}}'),
    "postgres-password": job(sink=f"{{type: postgres, table: t, password: {SECRET}}}"),
    "postgres-url-in-url_env": job(sink=f'{{type: postgres, table: t, url_env: "postgresql://u:{SECRET}@h/db"}}'),
    "postgres-url-in-service": job(sink=f'{{type: postgres, table: t, service: "postgresql://u:{SECRET}@h/db"}}'),
    "postgres-source-table": job(source=f'{{type: postgres, key: [a], table: "postgresql://u:{SECRET}@h/db"}}'),
    "kafka-sink-brokers": job(sink=f'{{type: kafka, topic: t, brokers: "u:{SECRET}@h:1"}}'),
    "kafka-source-brokers": job(source=f'{{type: kafka, topic: t, brokers: "u:{SECRET}@h:1"}}'),
    "kafka-second-broker": job(source=f'{{type: kafka, topic: t, brokers: "h:1,SASL_SSL://u:{SECRET}@h:2"}}'),
    "kafka-config": job(sink=f"{{type: kafka, topic: t, brokers: h:1, config: {{sasl.password: {SECRET}}}}}"),
    "kafka-config-place": job(sink=f'{{type: kafka, topic: t, brokers: h:1, config: "{AK}"}}'),
    "kafka-password": job(sink=f"{{type: kafka, topic: t, brokers: h:1, sasl.password: {SECRET}}}"),
    "lookup-path": lookup(f'path: "s3://AKID:{SECRET}@b/x.csv"'),
    "lookup-table": lookup(f'table: "postgresql://u:{SECRET}@h/db"'),
    "lookup-query": lookup(f"query: \"select * from dblink('postgresql://u:{SECRET}@h/db', 'select 1')\""),
    "lookup-url_env": lookup(f'table: t, url_env: "postgresql://u:{SECRET}@h/db"'),
    "dead-letter": job(
        more=f'  kept: {{from: rows, filter: f:g, on_error: {{dead_letter: "{AK}"}}}}\n', between="kept"
    ),
    "a-flag": job(sink=f'{{type: jsonl, path: out, deterministic: "{AK}"}}'),
    "an-unknown-key": job(sink=f'{{type: jsonl, path: out, "{AK}": 1}}'),
    "another-connector": job(sink=f'{{type: mqtt, url: "mqtt://u:{SECRET}@h:1883"}}'),
    "another-connector-nested": job(sink=f'{{type: mqtt, at: [{{url: "mqtt://u:{SECRET}@h:1883"}}]}}'),
}  # fmt: skip


@pytest.mark.sample(60)
@pytest.mark.parametrize("verbose", [False, True], ids=["", "vv"])
@pytest.mark.parametrize("name", JOBS)
def test_a_secret_in_a_job_file_is_refused_and_not_shown(
    name: str, verbose: bool, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = work.parent / "in" / "job.yaml"
    file.write_text(JOBS[name])
    more = ("-vv",) if verbose else ()
    for command in (
        ("topology", file), ("topology", file, "-o", "json"), ("run", file, "--store", "new", "--engine", "inline"),
        ("run", file, "--store", "new", "--engine", "inline", "--log-format", "json"),
    ):  # fmt: skip
        assert main([*map(str, command), *more]) == USAGE
        out, err = capsys.readouterr()
        assert_hidden(out + err)
    assert not (work / "new").exists()


@pytest.mark.parametrize(("name", "place", "part"), [
    ("delta-sink-s3", "5:47: operator out: sink: path", "user information before '@'"),
    ("jsonl-sink-abfs-with-a-signature", "5:47: operator out: sink: path", "a query string after '?'"),
    ("kafka-sink-brokers", "5:60: operator out: sink: brokers", "user information before '@'"),
])  # fmt: skip
def test_the_message_about_a_secret_names_its_line_and_field(
    name: str, place: str, part: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = work.parent / "in" / "job.yaml"
    file.write_text(JOBS[name])
    assert main(["topology", str(file)]) == USAGE
    assert f"job.yaml:{place}: contains credentials ({part})" in capsys.readouterr().err


PYTHON = {
    "source": f'job.jsonl("{AK}").to_jsonl("out")',
    "sink": f'job.jsonl("rows.jsonl").to_jsonl("{AK}")',
    "query": f'job.jsonl("rows.jsonl").to_parquet("{URIS["abfs-with-a-signature"]}")',
    "brokers": f'job.kafka("u:{SECRET}@h:1", "t").to_jsonl("out")',
}


@pytest.mark.parametrize("name", PYTHON)
def test_a_secret_in_a_job_of_python_is_refused_and_not_shown(
    name: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = work.parent / "in" / "job_of_python.py"
    file.write_text(f'from abscli import Job\njob = Job("secrets")\n{PYTHON[name]}\n')
    for more in ((), ("-vv",)):
        assert main(["run", str(file), "--store", "new", "--engine", "inline", *more]) == USAGE
        out, err = capsys.readouterr()
        assert "contains credentials" in err
        assert_hidden(out + err)


def test_the_python_interface_refuses_a_job_with_a_secret_and_does_not_show_it(work: Path) -> None:
    file = work.parent / "in" / "job.yaml"
    file.write_text(JOBS["delta-sink-s3"])
    with pytest.raises(FormatError, match="contains credentials") as raised:
        run_job(file, "new", engine="inline")
    assert_hidden("".join(traceback.format_exception(raised.value)))


# -- options and arguments --------------------------------------------------------------------------------

HTTP = f"http://u:{SECRET}@127.0.0.1:1"
REFERENCES = {
    **URIS,
    "s3-with-an-epoch": f"{AK}@7",
    "s3-with-a-bucket-like-a-tag": f"s3://AKID:{SECRET}@bucket",
    "gs-with-a-token": f"gs://b/x?token={SECRET}",
    "file-in-https": f"https://u:{SECRET}@a.example/x",
    "hdfs-with-a-password": f"hdfs://u:{SECRET}@h:8020/x",
}
OPTIONS: dict[str, tuple[str, ...]] = {
    "endpoint": ("inspect", "store", "--endpoint", HTTP),
    "endpoint-query": ("inspect", "store", "--endpoint", f"http://127.0.0.1:1/?key={SECRET}"),
    "broker": ("inspect", "store", "--broker", f"u:{SECRET}@h:1"),
    "broker-of-validate": ("validate", "store", "--broker", f"h:1,u:{SECRET}@h:1"),
    "broker-config": ("inspect", "store", "--broker", "h:1", "--broker-config", AK),
    "broker-config-of-validate": ("validate", "store", "--broker", "h:1", "--broker-config", AK),
    "search": ("inspect", "store", "--search", AK),
    "search-query": ("inspect", "store", "--search", URIS["abfs-with-a-signature"]),
    "path-map-old": ("inspect", "store", "--path-map", f"{AK}=s3://b/y"),
    "path-map-new": ("inspect", "store", "--path-map", f"s3://b/y={AK}"),
    "path-map-query": ("inspect", "store", "--path-map", f"s3://b/y=abfs://c@a/x?{SAS}"),
    "topology-of-a-report": ("report", "store", "--topology", AK, "--out", "x.html"),
    "copy": ("copy", "store", AK),
    "copy-query": ("copy", "store", URIS["abfs-with-a-signature"]),
    "out-of-report": ("report", "store", "--out", f"{AK}.html"),
    "out-of-state": ("state", "store", "counts", "--out", f"{AK}.parquet"),
    "out-of-plan": ("plan-recovery", "store", "--out", AK),
    "out-of-diff": ("diff", "store@1", "store@2", "--out", f"{AK}.jsonl"),
    "out-of-simulate": ("simulate", "--example", "single-token", "--out", f"{AK}.svg"),
    "check-of-simulate": ("simulate", "--check", AK),
    "gc": ("gc", AK),
    "rebuild": ("rebuild", AK),
    "doctor": ("doctor", AK),
    "doctor-master": ("doctor", "--master", f"spark://u:{SECRET}@127.0.0.1:1", "--spark"),
    "demo-master": ("demo", "--master", f"spark://u:{SECRET}@127.0.0.1:1"),
    "init": ("init", AK),
    "demo": ("demo", AK),
    "tag": ("tag", f"{AK}@1", "name"),
    "drill": ("drill", AK, "--job", "job.yaml"),
    "drill-job": ("drill", "store", "--job", AK),
    "restore-plan": ("restore", AK),
    "job-file": ("run", AK, "--store", "new"),
    "diff-after": ("diff", "store", AK),
}
RUNS = {
    "store": ("--store", AK), "store-query": ("--store", URIS["abfs-with-a-signature"]),
    "master": ("--store", "new", "--master", f"spark://u:{SECRET}@127.0.0.1:1"),
    "master-of-kubernetes": ("--store", "new", "--master", f"k8s://https://u:{SECRET}@127.0.0.1:1"),
    "advertise": ("--store", "new", "--master", "spark://127.0.0.1:1", "--advertise", f"http://u:{SECRET}@h"),
    "trace": ("--store", "new", "--engine", "inline", "--trace", AK),
    "endpoint": ("--store", "s3://b/x", "--endpoint", HTTP),
}  # fmt: skip


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> None:
    for more in ((), ("-vv",)):
        assert main([*arguments, *more]) == USAGE
        out, err = capsys.readouterr()
        assert "contains credentials" in err
        assert_hidden(out + err)


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", OPTIONS)
def test_a_secret_in_an_option_is_refused_and_not_shown(
    name: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(capsys, *OPTIONS[name])


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", REFERENCES)
def test_a_secret_in_a_reference_is_refused_and_not_shown(
    name: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("inspect", "validate", "state"):
        refused(capsys, command, REFERENCES[name])
    with pytest.raises(FormatError, match="contains credentials") as raised:
        open_store(REFERENCES[name])
    assert_hidden("".join(traceback.format_exception(raised.value)))


@pytest.mark.parametrize("name", RUNS)
def test_a_secret_in_an_option_of_run_is_refused_and_not_shown(
    name: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = work.parent / "in" / "job.yaml"
    file.write_text(job())
    refused(capsys, "run", str(file), *RUNS[name])


def test_a_secret_in_the_target_of_a_restore_is_refused_and_not_shown(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan-recovery", "store", "--out", "plan.json"]) == 0
    capsys.readouterr()
    file = work.parent / "in" / "job.yaml"
    file.write_text(job())
    refused(capsys, "restore", "plan.json", "--job", str(file), "--engine", "inline", "--to", AK)


def test_an_endpoint_without_a_scheme_is_refused_and_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "store", "--endpoint", f"u:{SECRET}@h:1"]) == USAGE
    out, err = capsys.readouterr()
    assert_hidden(out + err)


# -- where a secret belongs -------------------------------------------------------------------------------

KEY = base64.b64encode(SECRET.encode()).decode()
ENVIRONMENTS: dict[str, tuple[str, dict[str, str]]] = {
    "aws-keys": ("s3://b/x", {
        "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}),
    "aws-token": ("s3://b/x", {
        "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "k", "AWS_SESSION_TOKEN": SECRET,
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}),
    "aws-endpoint": ("s3://b/x", {
        "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "k", "AWS_ENDPOINT_URL": HTTP}),
    "azure-key": ("abfs://c@acct/x", {
        "AZURE_STORAGE_ACCOUNT_KEY": KEY, "AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:1"}),
    "azure-signature": ("abfs://c@acct/x", {
        "AZURE_STORAGE_SAS_TOKEN": f"?{SAS}", "AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:1"}),
    "azure-token": ("abfs://c@acct/x", {
        "AZURE_STORAGE_TOKEN": SECRET, "AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:1"}),
    "google-key": ("gs://b/x", {"GOOGLE_SERVICE_ACCOUNT_KEY": f'{{"private_key": "{SECRET}"}}'}),
    "google-endpoint": ("gs://b/x", {"GOOGLE_BASE_URL": HTTP, "GOOGLE_SKIP_SIGNATURE": "true"}),
}  # fmt: skip


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_secret_in_the_environment_is_not_shown_when_the_server_does_not_answer(
    name: str, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uri, environment = ENVIRONMENTS[name]
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr(retrying, "SECONDS", 0.1)
    monkeypatch.setattr(retrying, "STRANGER_SECONDS", 0.1)
    for more in ((), ("-vv",)):
        assert main(["inspect", uri, *more]) not in (0, 1)
        out, err = capsys.readouterr()
        assert_hidden(out + err)
        assert KEY not in out + err
    with pytest.raises((FormatError, PermissionError)) as raised:
        open_storage(uri).read("file")
    assert_hidden(str(raised.value))


DATABASE_URLS = [
    f"postgresql://u:{SECRET}@127.0.0.1:1/db",
    f"postgresql://u:{SECRET[:5]}@{SECRET[5:]}@127.0.0.1:1/db",
    f"postgresql://u:{SECRET[:5]}/{SECRET[5:]}@127.0.0.1:1/db",
    f"postgresql://u:{SECRET[:4]}/{SECRET[2:6]}@{SECRET[5:]}@127.0.0.1:1/db",
    f"postgresql://u:{SECRET[:5]}%{SECRET[5:]}@127.0.0.1:1/db",
    f"postgresql://u:p@127.0.0.1:{SECRET}/db",
    f"postgresql://u@127.0.0.1:1/db?password={SECRET}",
    f"postgresql://u@127.0.0.1:1/db?{SECRET}",
    f"postgresql://u@127.0.0.1:1/db?sslpassword={SECRET}",
    f"host=127.0.0.1 port=1 password={SECRET}",
    f"host=127.0.0.1 port=1 password={SECRET[:5]} {SECRET[5:]}",
    f"host=u:{SECRET}@127.0.0.1 port=1",
    f"http://u:{SECRET}@127.0.0.1:1/db",
    f"u:{SECRET}@127.0.0.1:1/db",
    SECRET,
]


@pytest.mark.parametrize("number", range(len(DATABASE_URLS)))
def test_no_piece_of_the_url_of_a_database_is_shown(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", DATABASE_URLS[number])
    with pytest.raises(Exception) as raised:
        Table("out", "t", None, "DATABASE_URL", None).reach()
    assert isinstance(raised.value, Unreachable) or getattr(raised.value, "exit_code", None) == USAGE
    assert_hidden(f"{raised.value} {getattr(raised.value, 'hint', '')}")
    assert_hidden("".join(traceback.format_exception(raised.value)))


def test_a_url_whose_password_is_cut_by_an_at_sign_is_refused_with_the_way_to_write_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", DATABASE_URLS[1])
    with pytest.raises(Exception, match="DATABASE_URL is not a valid URL") as raised:
        Table("out", "t", None, "DATABASE_URL", None).reach()
    assert "%40" in str(getattr(raised.value, "hint", ""))


def test_a_password_in_a_service_file_is_used_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "services").write_text(f"[orders]\nhost=127.0.0.1\nport=1\nuser=u\npassword={SECRET}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    with pytest.raises(Unreachable, match="port 1 failed") as raised:
        Table("out", "t", None, None, "orders").reach()
    assert_hidden("".join(traceback.format_exception(raised.value)))


@pytest.mark.parametrize("broker", ["127.0.0.1:1", f"u:{SECRET}@127.0.0.1:1"])
def test_a_password_of_a_broker_is_used_and_not_shown(
    broker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second is what a store of an older release may hold: it is shown by commands, which redact it."""
    from abscli.cli.output import say

    file = tmp_path / "kafka.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\nsasl.password={SECRET}\n"
    )
    with pytest.raises(Unreachable) as raised:
        Brokers(broker, settings(file)).topics(["t"], seconds=1)
    say("".join(traceback.format_exception(raised.value)))
    assert_hidden(capsys.readouterr().err)


def test_a_token_of_a_catalog_is_used_and_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from abscli.engine.sinks.iceberg.place import TablePlace

    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__URI", HTTP)
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__TOKEN", SECRET)
    with pytest.raises(Exception) as raised:
        TablePlace("out", "a.b", "prod", None, None, None).open(make=True)
    assert hasattr(raised.value, "exit_code")
    assert_hidden("".join(traceback.format_exception(raised.value)))


# -- nothing escapes the rule -----------------------------------------------------------------------------

NO_LOCATION = {"columns", "schema", "nulls", "delimiter", "event_time"}
"""Options whose texts are names and types of columns, expressions or spellings of values."""


def _fields() -> Iterator[tuple[str, Any]]:
    from formats.job import joins, on_error

    for kind, types in CONNECTORS.items():
        for type, record in types.items():
            for name, shape in record.fields.items():
                yield f"{kind} {type}: {name}", shape
    for record in (joins._LOOKUP, on_error._DEAD_LETTER):
        for name, shape in record.fields.items():
            yield f"operator: {name}", shape


@pytest.mark.parametrize(("title", "shape"), list(_fields()), ids=lambda value: value if isinstance(value, str) else "")
def test_every_text_of_a_connector_is_checked_for_credentials(title: str, shape: Any) -> None:
    from formats.job.file import BadFile  # noqa: F401 - the reader that reports the mistakes
    from formats.user_file.mistakes import Mistakes
    from formats.user_file.nodes import Scalar

    name = title.rpartition(" ")[2]
    if name in NO_LOCATION:
        return
    for text in (f"https://u:{SECRET}@h/x.csv", f"https://u:{SECRET}@h/x.parquet"):
        mistakes = Mistakes("job.yaml")
        shape.read(Scalar(text, text, False, 1, 1), "label", mistakes)
        with pytest.raises(FormatError) as raised:
            mistakes.raise_any()
        assert_hidden(str(raised.value))


LOCATIONS = {
    "BUCKET", "DIR", "FILE", "HOST:PORT", "JOB", "OLD=NEW", "OUTPUT", "PATH", "PLAN", "REF", "URL", "HOST",
}
"""What the help calls a location; each is in a placement above, or reads a file by `read_user_file`."""
OTHERS = {
    "NAME", "OPERATOR", "TASK", "OP=N", "UUID", "SOURCE:SPLIT=N", "SOURCE=NAME", "NAME=TYPE", "KEY", "CONDITION",
    "COLUMN", "NAMES", "SYSTEM:VERSION", "TAG", "COMMAND",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_with_a_text_is_known_to_be_a_location_or_not(command: str) -> None:
    texts: list[Any] = [param for param in load(command).params if param.type.name == "text"]
    assert {param.metavar for param in texts} <= LOCATIONS | OTHERS
