"""Uploads to sinks in buckets that nobody will complete: what attempts had begun that ended before a manifest named it.

An upload takes room, and no plain listing of a bucket shows it. Those are judged that attempts of this store have
begun, in sinks that it took last, and only when no job runs: any other may be named by a manifest yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from formats.native.facts import PartFacts
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


def left_uploads(store: NativeStore, sinks: Mapping[int, Sequence[PartFacts]] = {}) -> list[LeftUpload]:
    """Those of all sinks of the store; no job may run on it. FormatError and OSError where that cannot be known.

    sinks: the parts of sinks that epochs name, by epoch, of those that have been read already.
    """
    attempts = {attempt.id for attempt in store.attempts()}
    named, places = set[str](), set[str]()
    for epoch in filter(store.has_manifest, store.epoch_numbers()):
        parts = sinks[epoch] if epoch in sinks else store.parts(epoch)
        for file in (file for part in parts for file in part.sink):
            places.add(file.directory)
            if file.upload is not None:
                named.add(file.upload.id)
    topologies = {attempt.topology_sha256 for attempt in store.attempts()}
    for digest in topologies:
        paths = (op.connector.get("path") for op in store.topology_by_digest(digest).operators if op.connector)
        places.update(path for path in paths if path is not None)
    buckets = sorted({bucket_place(path) for path in places if is_bucket(path)})
    return [left for place in buckets for left in _left_in(place, attempts, named, real_place(store.path))]


def give_up(store: NativeStore, uris: Collection[str]) -> None:
    """Give up those of these that nobody will complete still, as `LeftUpload.uri` names them."""
    going: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for left in left_uploads(store) if uris else ():
        if left.uri in uris:
            going[left.place, left.path].append(left.id)
    for (place, path), ids in going.items():  # of one object together: some servers do not know one from another
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
