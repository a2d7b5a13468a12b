"""Let only the user's configuration tell pyiceberg which code to import, whom to contact, and with which credentials.

pyiceberg takes such settings from everywhere: it merges the properties of a table, and those with which a REST catalog
answers, into the settings of the storage client, and imports the classes that they name. A table may be anybody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from abscli.engine.errors import UsageError
from formats.redaction import redact

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

CODE = frozenset({"py-io-impl", "py-catalog-impl", "write.py-location-provider.impl", "s3.retry-strategy-impl"})
"""Properties that name a Python class, which pyiceberg imports."""
_CLIENT = ("s3.", "gcs.", "adls.", "adlfs.", "hdfs.", "hf.", "client.", "rest.", "header.", "ssl.", "auth.", "oauth2")
"""Prefixes of the settings of storage clients and of the REST client: endpoints, keys, tokens."""
_CONNECTION = frozenset({"uri", "token", "credential", "warehouse", "type", "user", "password"})


def untrusted(properties: Iterable[str]) -> list[str]:
    """Return the names of properties that a table must not have: they name code, a host or a credential."""
    return sorted(
        name for name in properties if name in CODE or name in _CONNECTION or name.lower().startswith(_CLIENT)
    )


def check_uri(operator: str, catalog: str, uri: str | None, configured: Mapping[str, Any]) -> None:
    """Check that the URI of a job file is the one that the user's settings have for this catalog.

    Otherwise pyiceberg would send the configured token to the URI of the job file. configured: the settings of the
    catalog, empty if there are none. Raises UsageError.
    """
    known = configured.get("uri")
    if uri is None or not configured or (isinstance(known, str) and known.rstrip("/") == uri.rstrip("/")):
        return
    there = "have no URI for this catalog" if known is None else f"set it to {redact(str(known))}"
    raise UsageError(
        f"sink {operator}: the job file sets the URI of catalog {catalog!r} to {redact(uri)}, but your own pyiceberg "
        f"settings {there}: your credentials would be sent to another server",
        hint=f"remove `uri` from the job file, or set PYICEBERG_CATALOG__{catalog.upper()}__URI to the same URI",
    )


def guarded(operator: str, catalog: Catalog, configured: Mapping[str, Any]) -> Catalog:
    """Make a catalog refuse tables, and answers of its server, that name code, a host or a credential.

    A REST server, which the user has named, may hand out credentials for a table; it may not name code.
    configured: as of `check_uri`. Raises UsageError for a server that names code in its own settings.
    """
    named = sorted(name for name in CODE & catalog.properties.keys() if name not in configured)
    if named:
        raise _refused(operator, f"the server of catalog {catalog.name!r} sets", named)
    plain_io: Any = catalog._load_file_io
    plain_table: Any = getattr(catalog, "_response_to_table", None)

    def load_file_io(properties: Mapping[str, str] = {}, location: str | None = None) -> Any:
        # In a REST catalog these hold what the server hands out, too: there `response_to_table` checks the table's.
        wrong = sorted(CODE & properties.keys()) if plain_table is not None else untrusted(properties)
        if wrong:
            raise _refused(operator, "the Iceberg table has", wrong)
        return plain_io(properties, location)

    def response_to_table(identifier: Any, response: Any) -> Any:
        if wrong := untrusted(response.metadata.properties):
            raise _refused(operator, "the Iceberg table has", wrong)
        return plain_table(identifier, response)

    guarded: Any = catalog  # mypy does not let methods be replaced
    guarded._load_file_io = load_file_io
    if plain_table is not None:
        guarded._response_to_table = response_to_table
    return catalog


def _refused(operator: str, who: str, names: list[str]) -> UsageError:
    return UsageError(
        f"sink {operator}: {who} the propert{'ies' if len(names) > 1 else 'y'} {', '.join(names)}, which can select "
        "code, a host or credentials",
        hint="set such properties only in your own pyiceberg settings (~/.pyiceberg.yaml or "
        "PYICEBERG_CATALOG__NAME__... in the environment), and remove them elsewhere",
    )
