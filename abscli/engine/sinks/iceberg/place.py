"""The location of an Iceberg table: its name, and the catalog that knows it."""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from abscli.engine.errors import UsageError
from abscli.engine.sinks.iceberg.trust import check_uri, guarded
from abscli.engine.sinks.places import place_of
from abscli.engine.sinks.staged.refusals import Unanswered, first_line
from formats.job.model import Operator
from formats.redaction import redact_error

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

DEFAULT = "default"
"""The catalog's name where the job says none, as pyiceberg has it."""
DATABASE = "catalog.db"
"""The SQLite file of a catalog that is only a folder."""
_SQLITE = "sqlite:///"


@dataclass(frozen=True, slots=True)
class TablePlace:
    """table: with its namespace. catalog: a name that pyiceberg's settings know. uri, warehouse: of the catalog, beside
    those settings or in place of them. folder: of the catalog that the job alone describes, absolute."""

    operator: str
    table: str
    catalog: str | None
    uri: str | None
    warehouse: str | None
    folder: str | None

    @classmethod
    def of(cls, operator: Operator, directory: str) -> TablePlace:
        """Return the location of the table of a sink. directory: of the job file."""
        options: dict[str, Any] = operator.connector or {}
        catalog, uri, warehouse = (options.get(name) for name in ("catalog", "uri", "warehouse"))
        folder = place_of(directory, warehouse) if warehouse and not catalog and not uri else None
        return cls(operator.id, options["table"], catalog, uri, warehouse, folder)

    @property
    def title(self) -> str:
        """Return what messages call the table."""
        return f"iceberg:{self.table}"

    def open(self, *, make: bool) -> Catalog | None:
        """The catalog, to be closed. make: also where it is a file that is not there yet; None else.

        UsageError where it is not known or something is not installed; EngineStopped where it cannot be reached.
        """
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NotInstalledError
        from pyiceberg.utils.config import Config

        try:
            database = self._database
            if database is not None and not make and not os.path.exists(database):
                return None
            if self.folder is not None:
                return guarded(self.operator, self._in_folder(self.folder), {})
            name = self.catalog or DEFAULT
            configured = Config().get_catalog_config(name) or {}
            check_uri(self.operator, name, self.uri, configured)
            given = {"uri": self.uri, "warehouse": self.warehouse}
            catalog = load_catalog(name, **{key: value for key, value in given.items() if value is not None})
            return guarded(self.operator, catalog, configured)
        except UsageError:
            raise
        except NotInstalledError as error:
            raise UsageError(f"sink {self.operator}: {first_line(error)}") from None
        except ValueError as error:
            name = self.catalog or DEFAULT
            variable = f"PYICEBERG_CATALOG__{name.upper()}__URI"
            raise UsageError(
                f"sink {self.operator}: catalog {name!r} cannot be used: {shown(error)}",
                hint=f"set {variable} in the environment, or configure the catalog in ~/.pyiceberg.yaml",
            ) from None
        except Exception as error:  # its client raises whatever comes of it
            raise Unanswered(
                f"sink {self.operator}: the catalog of {self.title} cannot be reached: {shown(error)}",
                hint="staged rows are kept; `abs run --resume` delivers them", reason=shown(error),
            ) from None  # fmt: skip

    @property
    def _database(self) -> str | None:
        """The file that the catalog is, which to open would make; None where the job names none."""
        if self.folder is not None:
            return os.path.join(self.folder, DATABASE)
        return self.uri.removeprefix(_SQLITE) if self.uri is not None and self.uri.startswith(_SQLITE) else None

    def _in_folder(self, folder: str) -> Catalog:
        from pyiceberg.catalog.sql import SqlCatalog

        database = os.path.join(folder, DATABASE)
        if not os.path.exists(database):
            _make_database(folder, database)
        return SqlCatalog(DEFAULT, uri=f"sqlite:///{database}", warehouse=folder)


def _make_database(folder: str, database: str) -> None:
    """An empty catalog, unless another job has just made one: whoever opens it finds all of its tables."""
    from pyiceberg.catalog.sql import SqlCatalog

    os.makedirs(folder, exist_ok=True)
    own = f"{database}.{secrets.token_hex(8)}"
    try:
        SqlCatalog(DEFAULT, uri=f"sqlite:///{own}", warehouse=folder).close()
        with contextlib.suppress(FileExistsError):
            os.link(own, database)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(own)


def shown(error: Exception) -> str:
    """Return the message of an error of a catalog's client, in one line and without a password."""
    return redact_error(error)
