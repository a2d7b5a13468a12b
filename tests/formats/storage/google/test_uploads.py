"""Uploads to Google's object store, which wait as objects of their own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from formats.storage import ObjectStorage
from formats.storage.uploading import open_uploads
from tests.support.objects.fixtures import Servers, use
from tests.support.objects.places import bucket_place

GOOGLE = "Google by a server in memory"


@pytest.mark.parametrize("dies_before", ["delete", "identity"])
def test_who_was_killed_completing_on_googles_leaves_it_completed(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, dies_before: str
) -> None:
    """Between the copy and the deletion of what was staged; `identity`: by who came next and was killed, too."""
    place = str(bucket_place(use(servers.get(GOOGLE), monkeypatch)).root)
    uploads, storage = open_uploads(place), ObjectStorage(place)
    id = uploads.begin("x", "d")
    etag = uploads.put("x", id, 1, b"x")

    def dies(*arguments: object) -> None:
        raise KeyboardInterrupt

    for method in ("delete", dies_before):
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStorage, method, dies)
            with pytest.raises(KeyboardInterrupt):
                uploads.complete("x", id, [etag], "d")
    assert [(upload.path, upload.id) for upload in uploads.below()] == [("x", id)]
    assert storage.read("x") == b"x"
    assert uploads.complete("x", id, [etag], "d")
    assert uploads.below() == []
    assert not uploads.complete("x", id, [etag], "d")
    assert storage.identity("x") == "d"


def test_what_is_taken_away_from_googles_does_not_come_again(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by who had been stopped before it completed, either: `end` comes first."""
    place = str(bucket_place(use(servers.get(GOOGLE), monkeypatch)).root)
    uploads, storage = open_uploads(place), ObjectStorage(place)
    id, other = uploads.begin("x", "d"), uploads.begin("y", "d")
    etag = uploads.put("x", id, 1, b"x")
    uploads.put("y", other, 1, b"y")
    storage.copy(f".staged/x/{id}/{etag}", "x", replace=False)  # by who was killed then
    uploads.end(["x"])
    storage.delete("x")
    assert not uploads.complete("x", id, [etag], "d")
    assert storage.size("x") is None
    assert [upload.id for upload in uploads.below()] == [other]


def test_googles_completes_over_nothing_that_is_there(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    place = str(bucket_place(use(servers.get(GOOGLE), monkeypatch)).root)
    uploads, storage = open_uploads(place), ObjectStorage(place)
    storage.put("x", b"another's")
    id = uploads.begin("x", "d")
    etag = uploads.put("x", id, 1, b"ours")
    assert not uploads.complete("x", id, [etag], "d")
    assert storage.read("x") == b"another's"
    assert uploads.size("x", id) == 4
    with pytest.raises(ValueError, match="as a whole"):
        uploads.put("x", id, 2, b"more")


def test_of_twenty_that_complete_one_upload_at_once_nobody_fails(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(bucket_place(use(servers.get(GOOGLE), monkeypatch)).root)
    uploads, storage = open_uploads(place), ObjectStorage(place)
    for n in range(5):
        id = uploads.begin(f"{n}", "d")
        etag = uploads.put(f"{n}", id, 1, b"x")
        complete = partial(uploads.complete, f"{n}", id, [etag], "d")
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda _, complete=complete: complete(), range(20)))
        assert any(answers)
        assert storage.identity(f"{n}") == "d"
    assert uploads.below() == []
