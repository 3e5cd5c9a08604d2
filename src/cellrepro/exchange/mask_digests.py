"""Masks by their digests, and as subjects of a statement: those of one image, and all together."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from cellrepro.exchange.json_records import JsonRecord, read_record
from cellrepro.exchange.statement import ResourceDescriptor, Sha256
from cellrepro.store.record_values import Inside
from samebits.digests import value_digest

MASKS = "masks"
"""Subject for all masks, if there are too many to name each."""
FILES_DIGEST = "cellrepro_files"
"""Name of the digest of many files: SHA-256 of the sorted lines ``sha256  name``, each ended by a
line feed."""
LABELS_DIGEST = "cellrepro_labels"
"""Name of the digest of masks: SHA-256 of the labels as they are numbered."""
OUTLINES_DIGEST = "cellrepro_outlines"
"""Name of the digest of outlines: SHA-256 of the labels renumbered in raster order."""


@dataclass(frozen=True)
class MaskDigests(JsonRecord):
    """The masks of one image by their digests."""

    file: Inside
    """Path in the repeat's folder."""
    sha256: Sha256
    """Digest of the file."""
    labels: Sha256
    """Digest of the labels as they are numbered."""
    outlines: Sha256
    """Digest of the labels renumbered in raster order: equal for equal outlines."""
    n_objects: int

    @property
    def subject(self) -> ResourceDescriptor:
        """The subject of a statement, but for the name of the image."""
        return ResourceDescriptor(
            name=self.file,
            digest={
                "sha256": self.sha256,
                LABELS_DIGEST: self.labels,
                OUTLINES_DIGEST: self.outlines,
            },
            annotations={"n_objects": self.n_objects},
        )

    @classmethod
    def of_subject(cls, subject: ResourceDescriptor) -> MaskDigests:
        """Validate the subject of a statement."""
        return read_record(
            cls,
            {
                "file": subject.name,
                "sha256": subject.digest.get("sha256"),
                "labels": subject.digest.get(LABELS_DIGEST),
                "outlines": subject.digest.get(OUTLINES_DIGEST),
                "n_objects": subject.annotations.get("n_objects"),
            },
        )


@dataclass(frozen=True)
class AllMasksDigests(JsonRecord):
    """All masks of a repeat by one digest of each kind, as docs/passport.md defines them."""

    files: Sha256
    """Digest of the sorted lines ``sha256  masks/NAME.tif``."""
    labels: Sha256
    """`Manifest.masks_digest`."""
    outlines: Sha256
    """The same over the digests of the outlines."""
    n_images: int
    n_objects: int

    @classmethod
    def of(cls, masks: Mapping[str, MaskDigests]) -> AllMasksDigests:
        """Digest the masks of all images."""
        return cls(
            files=files_digest({digests.file: digests.sha256 for digests in masks.values()}),
            labels=value_digest({image: digests.labels for image, digests in masks.items()}),
            outlines=value_digest({image: digests.outlines for image, digests in masks.items()}),
            n_images=len(masks),
            n_objects=sum(digests.n_objects for digests in masks.values()),
        )

    @property
    def subject(self) -> ResourceDescriptor:
        """The subject of a statement that stands for all masks."""
        return ResourceDescriptor(
            name=MASKS,
            digest={
                FILES_DIGEST: self.files,
                LABELS_DIGEST: self.labels,
                OUTLINES_DIGEST: self.outlines,
            },
            annotations={"n_images": self.n_images, "n_objects": self.n_objects},
        )

    @classmethod
    def of_subject(cls, subject: ResourceDescriptor) -> AllMasksDigests:
        """Validate the subject of a statement."""
        return read_record(
            cls,
            {
                "files": subject.digest.get(FILES_DIGEST),
                "labels": subject.digest.get(LABELS_DIGEST),
                "outlines": subject.digest.get(OUTLINES_DIGEST),
                "n_images": subject.annotations.get("n_images"),
                "n_objects": subject.annotations.get("n_objects"),
            },
        )


def files_digest(files: Mapping[str, str]) -> str:
    """One digest of many files, as for a folder of images."""
    lines = sorted(f"{digest}  {name}\n".encode() for name, digest in files.items())
    return hashlib.sha256(b"".join(lines)).hexdigest()
