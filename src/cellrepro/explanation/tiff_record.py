"""What the tags of a TIFF record of the program that wrote it."""

from __future__ import annotations

from pathlib import Path

from cellrepro.explanation.recorded_settings import SOFTWARE, WRITTEN, RecordedSettings, of_file

_TIFF = (".tif", ".tiff")
_TAGS = {"Software": SOFTWARE, "DateTime": WRITTEN, "ImageDescription": "description"}
_MOST_CHARACTERS = 120


def tiff_record(path: Path) -> RecordedSettings:
    """Give what the tags of a label image record.

    ``software``, ``written`` (when) and ``description``, as far as the tags have them. A
    description that only repeats the shape of the array is left out.
    """
    if path.suffix.lower() not in _TIFF:
        return RecordedSettings()
    import tifffile

    found: dict[str, object] = {}
    with tifffile.TiffFile(path) as file:
        tags = file.pages.first.tags
        for tag, name in _TAGS.items():
            text = str(tags[tag].value).strip() if tag in tags else ""
            if text and not text.startswith('{"shape"'):
                found[name] = " ".join(text.split())[:_MOST_CHARACTERS]
    return RecordedSettings(of_file(path.name, found))
