"""The uploads of a place, by the kind of its bucket. Apart from `opening`: few commands upload, and what HTTP takes is
long in loading."""

from __future__ import annotations

from formats.storage.azure.uploads import AzureUploads
from formats.storage.google.uploads import GoogleUploads
from formats.storage.places import bucket_of
from formats.storage.s3.uploads import S3Uploads
from formats.storage.uploads import Uploads

UPLOADS: dict[str, type[Uploads]] = {"s3": S3Uploads, "az": AzureUploads, "gs": GoogleUploads}
"""By the kind of a bucket."""


def open_uploads(uri: str) -> Uploads:
    """The uploads below a place in a bucket of a kind that has them; KeyError for any other."""
    return UPLOADS[bucket_of(uri).kind](uri)
