"""Build the single file of `abs` from wheels: `python -m abscli.cli.bundle.build VARIANT LOCK WHEELS OUT`.

`.ci/reader` fetches the wheels and calls this. The same wheels give the same bytes: entries are sorted, and have no
times of their own.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from abscli.cli.bundle import bootstrap, contents
from abscli.cli.bundle.contents import BadBundle, Variant

SHEBANG: Final = "#!/usr/bin/env python{}\n"
MAIN: Final = """\
import sys

if sys.version_info < (3, 8):
    sys.stderr.write("abs: error: this file needs Python {python}, and this is Python %d.%d\\n" % sys.version_info[:2])
    sys.stderr.write("hint: python{python} %s\\n" % " ".join(sys.argv))
    sys.exit(2)
from abs_bootstrap import start

sys.exit(start())
"""
"""The first code of the file, which every Python can read; `abs_bootstrap` reports a Python of another version."""
EARLIEST: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every entry: the first that a zip file can have."""
USAGE: Final = 2


def build(variant: Variant, lock: str, wheels: Path, out: Path) -> int:
    """Write the single file; return its size in bytes.

    lock: the text of the lock file; wheels: the folder with the wheels. BadBundle if they do not match, or if the file
    would be larger than its variant may be.
    """
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(wheels.glob("*.whl"))}
    names = contents.chosen(digests, contents.pins(lock), variant)
    target = contents.target_of(names, bootstrap.this_target())
    files: dict[str, bytes] = {}
    for name in names:
        for path, content in _read(wheels / name):
            if path in files:
                raise BadBundle(f"{name} brings {path}, which another wheel has brought")
            files[path] = content
    entries = {
        "__main__.py": MAIN.format(python=target["python"]).encode(),
        "abs_bootstrap.py": Path(bootstrap.__file__).read_bytes(),
        bootstrap.MANIFEST: contents.manifest(variant, target, files),
        **{bootstrap.FILES + path: files[path] for path in sorted(files)},
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{out.name}.", dir=out.parent)
    try:
        with open(descriptor, "wb") as stream:
            stream.write(SHEBANG.format(target["python"]).encode())
            _zip(stream, entries)
        size = os.path.getsize(temporary)
        if size > variant.most:
            raise BadBundle(f"{out.name} has {size:,} bytes, and may have {variant.most:,}")
        os.chmod(temporary, 0o755)
        os.replace(temporary, out)
    except BaseException:
        os.unlink(temporary)
        raise
    return size


def _read(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a wheel that belong into the folder, with their places there."""
    distribution = contents.wheel_of(wheel.name).name
    with zipfile.ZipFile(wheel) as opened:
        for name in opened.namelist():
            path = contents.place(distribution, name)
            if path is not None:
                yield path, opened.read(name)


def _zip(stream: IO[bytes], entries: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in entries.items():
            entry = zipfile.ZipInfo(name, EARLIEST)
            entry.create_system = 3  # Unix, wherever it is built
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)


def main(arguments: Sequence[str]) -> int:
    """Build a variant and print its size; return an exit code."""
    if len(arguments) != 4 or arguments[0] not in contents.VARIANTS:
        sys.stderr.write(f"usage: build {{{','.join(contents.VARIANTS)}}} LOCK WHEELS OUT\n")
        return USAGE
    name, lock, wheels, out = arguments
    try:
        size = build(contents.VARIANTS[name], Path(lock).read_text(encoding="utf-8"), Path(wheels), Path(out))
    except BadBundle as error:
        sys.stderr.write(f"reader: error: {error}\nhint: make lock\n")
        return USAGE
    sys.stdout.write(f"{out}: {size / 1e6:.1f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
