"""Find credentials in the locations that users write, and hide credentials in the messages that users read.

Job files, options and references name places by URIs and paths. Stores and messages repeat these places, so
credentials in them are refused (`refuse_credentials`) and belong into the environment. Messages of other programs and
stores of other writers may still hold a URI with credentials: `redact` hides them before anything is shown. Everything
here is linear in the length of the text, because URIs in stores and in error messages are hostile input.
"""

from __future__ import annotations

import re
from enum import StrEnum
from urllib.parse import unquote

from formats.errors import FormatError


class Credentials(StrEnum):
    """The part of a location that may hold credentials."""

    USER = "user information before '@'"
    COLON = "a ':' that no port number follows"
    QUERY = "a query string after '?'"
    FRAGMENT = "a fragment after '#'"


class Location(StrEnum):
    """The kind of a location, which decides what counts as credentials in it."""

    PLACE = "place"
    """A path or URI."""
    GLOB = "glob"
    """A path or URI in which `?` also stands for one character."""
    BROKERS = "brokers"
    """HOST:PORT, several separated by commas."""
    NAME = "name"
    """No location, but a user may take it for one: only a URI with a scheme counts."""


class CredentialsRefused(FormatError):
    """A location contains credentials. The message never holds a piece of the location."""


HIDDEN = "…"
NESTED = 4
"""Schemes that are read in one URI: each costs a look at the rest of the text."""
CONTAINERS = frozenset({"abfs", "abfss", "az", "wasb", "wasbs"})
"""Schemes of Azure, whose URIs have CONTAINER@ACCOUNT where other URIs have USER@HOST."""
_LOCAL = frozenset({"file", "dbfs", "sqlite"})
"""Schemes of paths on this machine: these URIs have no host."""
_BUCKETS = CONTAINERS | {"s3", "s3a", "s3n", "s3p", "gs", "hdfs", "webhdfs"}
"""Schemes of stores. A reference such as s3://BUCKET@7 names an epoch, so a lone name before '@' stays visible."""
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*(?::[A-Za-z][A-Za-z0-9+.-]*)?):(/+)")
_PORT = re.compile(r"(?:[^:\[\]]*|[^:\[\]]*\[[0-9A-Fa-f:.%]*\])(?::[0-9]*)?")
"""A host, also an IPv6 address in brackets, and its port."""
_PARAMETER = re.compile(r"\?[^/?=]*=")
_HOMES = {
    **dict.fromkeys(("s3", "s3a", "s3n", "s3p"), "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"),
    **dict.fromkeys(("gs",), "set GOOGLE_APPLICATION_CREDENTIALS to the file with the key"),
    **dict.fromkeys((*CONTAINERS, "http", "https"), "set AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_ACCOUNT_KEY"),
    **dict.fromkeys(("hdfs", "webhdfs"), "set HADOOP_USER_NAME"),
}  # fmt: skip


def find_credentials(location: str, kind: Location = Location.PLACE) -> Credentials | None:
    """Return the part of a location that may hold credentials, or None.

    Azure's CONTAINER@ACCOUNT holds none. A path without a scheme may contain '#' and '?', as file names do, but neither
    USER:PASSWORD@HOST nor `?name=value`, which are URIs whose scheme was left out.
    """
    if kind is Location.BROKERS:
        return next((part for sign, part in _SIGNS.items() if sign in location), None)
    match = _SCHEME.match(location)
    if match is None and kind is Location.NAME:
        return None
    if match is None or match[1].lower() in _LOCAL:
        first = (location if match is None else location[match.end() :]).lstrip().lstrip("/").partition("/")[0]
        name, at, _ = first.partition("@")
        if at and ":" in name:
            return Credentials.USER
        return Credentials.QUERY if _PARAMETER.search(location) else None
    rest = location[match.end() :]
    if "#" in rest:
        part = Credentials.FRAGMENT
    elif (_PARAMETER.search(rest) if kind is Location.GLOB else "?" in rest):
        part = Credentials.QUERY
    else:
        part = None
    return _in_authority(match[1].lower(), len(match[2]), rest) or part


_SIGNS = {"@": Credentials.USER, "?": Credentials.QUERY, "#": Credentials.FRAGMENT}


def _in_authority(scheme: str, slashes: int, rest: str) -> Credentials | None:
    authority, _, after = rest.partition("/")
    for _ in range(NESTED):  # a URI in a URI, such as k8s://https://HOST:PORT
        if not authority.endswith(":") or not after:
            break
        scheme, slashes = authority[:-1].lower(), 2
        authority, _, after = after.lstrip("/").partition("/")
    authority = unquote(re.split("[?#]", authority, maxsplit=1)[0])
    name, at, _ = authority.partition("@")
    if at:
        is_container = scheme in CONTAINERS and name and ":" not in name and authority.count("@") == 1
        has_no_host = slashes > 2 and ":" not in name  # hdfs:///user@domain is a path
        return None if is_container or has_no_host else Credentials.USER
    if all(_PORT.fullmatch(host) for host in authority.split(",")) or slashes > 2:
        return None
    # A secret key of AWS may hold a '/', which ends the part of a URI that has the user information.
    return Credentials.USER if "@" in rest else Credentials.COLON


def refuse_credentials(location: str, title: str, kind: Location = Location.PLACE) -> None:
    """Raise CredentialsRefused if a location may hold credentials.

    title: what messages call the location, such as the option that gave it.
    """
    if (part := find_credentials(location, kind)) is not None:
        raise CredentialsRefused(refusal(title, part), hint=home_of(location, kind))


def refuse_user_information(uri: str, title: str) -> None:
    """Raise CredentialsRefused for user information in a URI that need not come from the user.

    The name of an object that a store lists may have '?' and '#'.
    """
    if (part := find_credentials(uri)) in (Credentials.USER, Credentials.COLON):
        raise CredentialsRefused(refusal(title, part), hint=home_of(uri))


def refuse_credentials_in(locations: tuple[str, ...], title: str) -> None:
    """Raise CredentialsRefused if one of several locations may hold credentials."""
    for location in locations:
        refuse_credentials(location, title)


def refusal(title: str, part: Credentials) -> str:
    """Return the message about credentials in a location, without a piece of the location."""
    return f"{title}: contains credentials ({part}), which would be shown in messages and kept in stores"


def home_of(location: str, kind: Location = Location.PLACE) -> str:
    """Return a hint at the place where the credentials of a location belong."""
    if kind is Location.BROKERS:
        return "write HOST:PORT; sasl.username and sasl.password belong into the file of config or --broker-config"
    match = _SCHEME.match(location)
    home = _HOMES.get(match[1].lower()) if match else None
    return f"remove them here; in the environment {home}" if home else "remove them here; put them into the environment"


_URI = re.compile(r"""(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{0,40}:/{1,3})((?:[^\s"'<>`\\]|\\[^"\s])*)""")
"""A URI in a text. A backslash is read with the character after it, so that text in JSON stays JSON."""
_USER_AT_HOST = re.compile(
    r"""(?<![^\s"'(=,;])[^\s:@/"'(=,;]{1,256}:(?!/)[^\s@/"'\\(=,;]{1,512}+@(?=[A-Za-z\[]|[0-9]+[.:])"""
)
"""USER:PASSWORD@HOST without a scheme, as in a list of brokers; not PATH@7, a reference to an epoch. A password
ends where another match could begin, so that no character is tried twice."""
_VALUE = re.compile(r"=[^&;=]*(?:=[^&;]*)?")
_END = re.compile(r"[).,:;\]}]{1,4}$")
_PAIR = re.compile(
    r"(?i)((?:sig|signature|token|credential|passw(?:or)?d|secret|access[_-]?key|account[_-]?key|bearer)"
    r"(?:[\"']?\s{0,3}[=:]\s{0,3}[\"']?|\s{1,3}(?=[A-Za-z0-9._~+/-]{16})))[^&\s\"',;]+"
)


def redact(text: str) -> str:
    """Return a text in which every URI is shown without user information and without values of its query.

    Azure's CONTAINER@ACCOUNT, hosts, ports, paths, epochs (`PATH@7`) and names of parameters stay.
    """
    if "@" not in text and "://" not in text and ":/" not in text:
        return text
    return _USER_AT_HOST.sub(f"{HIDDEN}@", _URI.sub(lambda match: match[1] + _redact_rest(match[1], match[2]), text))


def has_user_information(text: str) -> bool:
    """Return whether a URI in a text has user information, as in a query that connects to another database."""
    return any(find_credentials(match[0]) in (Credentials.USER, Credentials.COLON) for match in _URI.finditer(text))


def redact_error(error: BaseException) -> str:
    """Return the first line of an error of another program, as `redact` shows it, without what may be a secret."""
    lines = str(error).strip().splitlines()
    return _PAIR.sub(rf"\1{HIDDEN}", redact(lines[0])) if lines else type(error).__name__


def _redact_rest(scheme: str, rest: str) -> str:
    """Redact what follows `scheme://` in a URI."""
    name = scheme.partition(":")[0].lower()
    lead = ""
    for _ in range(NESTED):
        if (nested := re.match(r"[A-Za-z][A-Za-z0-9+.-]{0,40}:/{1,3}", rest)) is None:
            break
        lead, rest, name = lead + nested[0], rest[nested.end() :], nested[0].partition(":")[0].lower()
    end = re.search("[?#]", rest)
    head, tail = (rest[: end.start()], rest[end.start() :]) if end else (rest, "")
    authority, slash, path = head.partition("/")
    user, at, host = authority.rpartition("@")
    if "@" in tail and not at and not _is_host(authority):  # a '?' or '#' in a password
        return f"{lead}{HIDDEN}@{tail.rpartition('@')[2]}"
    if at and not (name in _BUCKETS and ":" not in user and "@" not in user and "%" not in user):
        head = f"{HIDDEN}@{host}{slash}{path}"
    elif not at and name not in _LOCAL and not _is_host(unquote(authority) if "%" in authority else authority):
        before, also_at, after = head.rpartition("@")
        authority = "" if "%" in authority else authority
        head = f"{HIDDEN}@{after}" if also_at and before else f"{authority.partition(':')[0]}:{HIDDEN}{slash}{path}"
    return lead + head + _redact_query(tail)


def _is_host(authority: str) -> bool:
    closing = _END.search(authority)  # of the sentence around the URI
    plain = authority[: closing.start()] if closing else authority
    return "@" not in plain and all(_PORT.fullmatch(host) for host in plain.split(","))


def _redact_query(tail: str) -> str:
    if "=" not in tail:
        return tail
    closing = _END.search(tail)
    end = closing.start() if closing else len(tail)
    return _VALUE.sub(f"={HIDDEN}", tail[:end]) + tail[end:]
