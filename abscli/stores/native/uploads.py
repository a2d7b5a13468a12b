"""Uploads to sinks in buckets that nobody will complete: those of attempts that ended before a manifest named them.

An upload takes room, and no plain listing of a bucket shows it. Only uploads are judged that attempts of this store
have begun, to places that the store was the last to write, and only while no job runs: a manifest may yet name any
other. The places are those of the job file that the user names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote

from abscli.stores.native.checks.named_parts import Way, way_of
from abscli.stores.native.targets import Targets
from formats.native.sink_bucket import SinkBucket, bucket_place, is_bucket, part_of
from formats.native.store import NativeStore
from formats.storage import concurrently, real_place
from formats.storage.uploading import open_uploads


class LeftUpload(NamedTuple):
    """One that nobody will complete.

    place: of the sink. path: of the object that it would become, relative to that.
    bytes: of its parts so far.
    begun: seconds since 1970; by whose clock: `Upload`.
    """

    place: str
    path: str
    id: str
    bytes: int
    begun: float

    @property
    def uri(self) -> str:
        """What messages call it."""
        return f"{self.place}/{self.path}?uploadId={quote(self.id, safe='')}"


def buckets_of(targets: Targets) -> list[str]:
    """Return the places in buckets that sinks of the job file write files to."""
    paths = [(sink.connector or {}).get("path") for sink in targets.sinks.values() if way_of(sink) is Way.FILE]
    return sorted({bucket_place(path) for path in paths if path is not None and is_bucket(path)})


def left_uploads(store: NativeStore, places: Sequence[str]) -> list[LeftUpload]:
    """List the uploads to these places in buckets that nobody will complete; other places have none.

    No job may run on the store. Raises FormatError and OSError if that cannot be known.
    """
    buckets = [place for place in places if is_bucket(place)]
    if not buckets:
        return []
    attempts = {attempt.id for attempt in store.attempts()}
    named = {
        file.upload.id
        for epoch in filter(store.has_manifest, store.epoch_numbers())
        for part in store.parts(epoch)
        for file in part.sink
        if file.upload is not None
    }
    return [left for place in buckets for left in _left_in(place, attempts, named, real_place(store.path))]


def give_up(store: NativeStore, places: Sequence[str], uris: Collection[str]) -> None:
    """Abort those of these uploads that still nobody will complete. uris: as of `LeftUpload.uri`."""
    going: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for left in left_uploads(store, places) if uris else ():
        if left.uri in uris:
            going[left.place, left.path].append(left.id)
    for (place, path), ids in going.items():  # of one object together: some servers do not tell its uploads apart
        open_uploads(place).abort(path, ids)


def _left_in(place: str, attempts: set[str], named: set[str], store: str) -> Iterator[LeftUpload]:
    bucket = SinkBucket(place)
    claim = bucket.newest_claim()
    if claim is None or claim.attempt_id not in attempts or real_place(claim.store) != store:
        return  # another store, of which this one may be a copy, may name them
    uploads = bucket.uploads.below()
    # On Google's an upload that was completed waits on, where its process was killed just then.
    shown = {one.object for one in bucket.shown()} if uploads else set()
    left = [
        upload
        for upload in uploads
        if (part := part_of(upload.path)) is not None
        and part[0].attempt_id in attempts
        and (upload.id not in named or upload.path in shown)
    ]
    sizes = concurrently(bucket.storage, lambda upload: bucket.uploads.size(upload.path, upload.id), left)
    for upload, size in zip(left, sizes, strict=True):
        if size is not None:  # else it has gone meanwhile
            yield LeftUpload(place, upload.path, upload.id, size, upload.begun)
