"""Files of outlines: ROIs of ImageJ, the text that Cellpose writes, GeoJSON."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cellrepro.errors import no_such_file
from cellrepro.extras import absent, needs
from cellrepro.images.decoding import empty_file, read_bytes
from cellrepro.images.outlines import MOST_CELLS, MOST_POINTS, Outline, Outlines, Ring, outlines_of
from cellrepro.pickles import Refused
from cellrepro.zip_files import opened_zip
from samebits.errors import BadInput
from samebits.words import amount, some

if TYPE_CHECKING:
    import roifile

ROI_ENDING = ".roi"
GEOJSON_ENDING = ".geojson"
TEXT_ENDING = "_outlines.txt"
ROIS_ENDING = "_rois.zip"
OUTLINE_ENDINGS = (ROIS_ENDING, TEXT_ENDING, GEOJSON_ENDING)
"""How names of files end that hold all outlines of an image, in lower case."""
_MOST_BYTES = 2**28  # of a text
_MOST_BYTES_OF_ROI = 2**24
_BEGINNING = 2**12  # bytes of JSON in which GeoJSON shows
_AREAS = ("POLYGON", "RECT", "OVAL", "FREEHAND", "TRACED")
"""ROIs of ImageJ that enclose something; others are lines and points."""


def is_outline_file(path: Path) -> bool:
    """Whether a file or folder holds the outlines of one image, by its name or its content."""
    name = path.name.lower()
    if path.is_dir():
        return bool(_rois_in_folder(path))
    if name.endswith((*OUTLINE_ENDINGS, ROI_ENDING)):
        return True
    if not path.is_file():
        return False
    if name.endswith(".zip"):
        return _holds_rois(path)
    if name.endswith(".json"):
        with path.open("rb") as stream:
            beginning = stream.read(_BEGINNING)
        return any(b'"%s"' % kind in beginning for kind in (b"FeatureCollection", b"Feature"))
    return False


def outline_format(path: Path) -> str:
    """How a file or folder that `is_outline_file` holds its outlines, in words."""
    name = path.name.lower()
    if path.is_dir() or name.endswith((".zip", ROI_ENDING)):
        return "ROIs of ImageJ"
    if name.endswith((GEOJSON_ENDING, ".json")):
        return "GeoJSON"
    return "text, as Cellpose writes it"


def read_outlines(path: Path) -> Outlines:
    """Read a file of outlines, or a folder of ROIs, one of each cell."""
    if path.is_dir():
        return outlines_of(path, *_with_left_out(_rois_of_files(path, _rois_in_folder(path))))
    if not path.is_file():
        raise no_such_file(path)
    if not path.stat().st_size:
        raise empty_file(path)
    name = path.name.lower()
    if name.endswith(".zip"):
        return outlines_of(path, *_with_left_out(_rois_of_zip(path)))
    if name.endswith(ROI_ENDING):
        return outlines_of(path, *_with_left_out(_rois_of_files(path, [path])))
    if name.endswith((GEOJSON_ENDING, ".json")):
        return _of_geojson(path)
    return _of_text(path)


def _text_bytes(path: Path, most: int) -> bytes:
    if path.stat().st_size > most:
        raise BadInput(
            f"{path}: {path.stat().st_size} bytes, expected at most {most}; export the cells of "
            "one image alone"
        )
    return read_bytes(path)[:]


def _refuse_too_many(path: Path, n_cells: int, n_points: int) -> None:
    if n_cells > MOST_CELLS or n_points > MOST_POINTS:
        raise BadInput(
            f"{path}: more than {MOST_CELLS} outlines or {MOST_POINTS} points; export the cells of "
            "one image alone"
        )


# -- ImageJ ----------------------------------------------------------------------------------


def _holds_rois(path: Path) -> bool:
    """Whether most files in a zip archive are ROIs."""
    try:
        with opened_zip(path) as archive:
            return any(map(_is_roi, archive.namelist()))
    except (OSError, ValueError, RuntimeError, Refused, zipfile.BadZipFile, NotImplementedError):
        return False


def _is_roi(name: str) -> bool:
    """Whether a part of an archive is a ROI, and no shadow of one that macOS made."""
    return name.lower().endswith(ROI_ENDING) and "__MACOSX" not in name


def _rois_of_zip(path: Path) -> Iterator[roifile.ImagejRoi]:
    n_points = 0
    try:
        with opened_zip(path) as archive:
            parts = [part for part in archive.infolist() if _is_roi(part.filename)]
            _refuse_too_many(path, len(parts), 0)
            for part in parts:
                if part.file_size > _MOST_BYTES_OF_ROI:
                    raise Refused(f"{part.filename!r} has {part.file_size} bytes")
                with archive.open(part) as stream:
                    content = stream.read(_MOST_BYTES_OF_ROI)
                roi = _roi(path, part.filename, content)
                n_points += roi.n_coordinates + roi.shape_roi_size
                _refuse_too_many(path, 0, n_points)
                yield roi
    except BadInput:
        raise
    except Exception as error:  # a damaged archive ends in nearly any
        reason = " ".join(str(error).split())[:120]
        raise BadInput(
            f"{path}: no zip archive of ROIs that can be read ({reason}); save it again in ImageJ "
            "(ROI Manager, More, Save), or with Cellpose"
        ) from error


def _rois_in_folder(folder: Path) -> list[Path]:
    """The ROIs of a folder in which everything is one; none of any other folder."""
    files: list[Path] = []
    try:
        inside = list(folder.iterdir())
    except OSError:  # whoever reads its files says why
        return []
    for path in inside:
        if path.name.lower().endswith(ROI_ENDING):
            files.append(path)
        elif not path.name.startswith("."):
            return []
    return sorted(files, key=lambda path: (len(path.name), path.name))


def _rois_of_files(path: Path, files: Sequence[Path]) -> Iterator[roifile.ImagejRoi]:
    _refuse_too_many(path, len(files), 0)
    n_points = 0
    for file in files:
        roi = _roi(file, file.stem, _text_bytes(file, _MOST_BYTES_OF_ROI))
        n_points += roi.n_coordinates + roi.shape_roi_size
        _refuse_too_many(path, 0, n_points)
        yield roi


def _roi(path: Path, name: str, content: bytes) -> roifile.ImagejRoi:
    missing = absent(["roifile"])
    if missing:
        raise needs(missing, what="reading ROIs of ImageJ")
    import roifile

    try:
        roi = roifile.ImagejRoi.frombytes(content)
    except Exception as error:  # of a damaged one nearly any
        reason = " ".join(str(error).split())[:120]
        raise BadInput(
            f"{path}: {name!a} is no ROI of ImageJ ({reason}); save it again in ImageJ"
        ) from error
    return roi


def _with_left_out(rois: Iterator[roifile.ImagejRoi]) -> tuple[list[Outline], list[str]]:
    """The outlines of ROIs, and what is none of them."""
    cells: list[Outline] = []
    left_out: list[str] = []
    for roi in rois:
        rings = _rings(roi) if roi.roitype.name in _AREAS else ()
        if not rings:
            left_out.append(roi.roitype.name.lower())
            continue
        position = roi.z_position or roi.t_position or roi.position
        plane = position - 1 if position > 0 else None
        cells.append(Outline(rings, roi.name, plane))
    kinds = some(sorted(set(left_out)))
    if not left_out:
        return cells, []
    return cells, [f"{amount(len(left_out), 'ROI')} without an area not drawn ({kinds})"]


def _rings(roi: roifile.ImagejRoi) -> tuple[Ring, ...]:
    try:
        rings = [np.asarray(ring, np.float64) for ring in roi.coordinates(multi=True)]
    except Exception:  # a damaged path ends in nearly any; what is none is counted
        return ()
    return tuple(ring for ring in rings if ring.ndim == 2 and len(ring) >= 3)


# -- the text of Cellpose --------------------------------------------------------------------


def _of_text(path: Path) -> Outlines:
    """Read x,y,x,y … of a cell in each line; of a small cell Cellpose leaves the line empty."""
    text = _text_bytes(path, _MOST_BYTES).decode("utf-8", errors="replace").rstrip("\r\n")
    cells = []
    n_empty = n_points = 0
    for n, line in enumerate(io.StringIO(text), start=1):
        if not line.strip():
            n_empty += 1
            continue
        numbers = line.split(",")
        try:
            points = np.array(numbers, np.float64)
        except ValueError as error:
            raise _wrong_line(path, n, str(error)) from error
        if len(points) % 2 or len(points) < 6:
            raise _wrong_line(path, n, f"{amount(len(points), 'number')}")
        n_points += len(points)
        _refuse_too_many(path, n, n_points)
        cells.append(Outline((points.reshape(-1, 2),), name=str(n)))
    remarks = []
    if n_empty:
        verb = "is" if n_empty == 1 else "are"
        remarks.append(
            f"{amount(n_empty, 'line')} {verb} empty: Cellpose writes no outline of a cell with up "
            "to 4 pixels around it"
        )
    return outlines_of(path, cells, remarks, along_pixels=True)


def _wrong_line(path: Path, line: int, why: str) -> BadInput:
    return BadInput(
        f"{path}, line {line}: no outline ({why[:120]}); expected x,y,x,y … of one cell in each "
        "line, at least three points, as Cellpose writes NAME_cp_outlines.txt"
    )


# -- GeoJSON ---------------------------------------------------------------------------------


def _of_geojson(path: Path) -> Outlines:
    """Read polygons of GeoJSON, as QuPath, sopa and Vizgen write them."""
    data = _text_bytes(path, _MOST_BYTES)
    try:
        content = json.loads(data.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise BadInput(
            f"{path}: no JSON that can be read ({reason}); export the cells again as GeoJSON"
        ) from error
    features = [feature for feature in _features(content) if isinstance(feature, Mapping)]
    _refuse_too_many(path, len(features), 0)
    kinds = {_properties(feature).get("objectType") for feature in features}
    cells: list[Outline] = []
    n_without_area = n_annotations = n_points = 0
    for n, feature in enumerate(features, start=1):
        if kinds & {"cell", "detection"} and _properties(feature).get("objectType") == "annotation":
            n_annotations += 1
            continue
        geometry = feature.get("geometry", feature)
        try:
            rings = tuple(_rings_of(geometry))
        except (ValueError, TypeError, RecursionError) as error:
            raise BadInput(
                f"{path}: shape {n} has no coordinates of a polygon "
                f"({' '.join(str(error).split())[:120]}); expected [[x, y], …] for each ring"
            ) from error
        n_points += sum(map(len, rings))
        _refuse_too_many(path, 0, n_points)
        if not rings:
            n_without_area += 1
            continue
        cells.append(Outline(rings, _name(feature), _plane(geometry, feature), _category(feature)))
    remarks = []
    if n_without_area:
        remarks.append(f"{amount(n_without_area, 'shape')} without an area not drawn")
    if n_annotations:
        verb = "is" if n_annotations == 1 else "are"
        remarks.append(f"{amount(n_annotations, 'annotation')} of QuPath {verb} no cell")
    return outlines_of(path, cells, remarks)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")


def _features(content: object) -> Sequence[object]:
    """The shapes of a collection, of a bare list (QuPath before 0.3), or one by itself."""
    if isinstance(content, list):
        return content
    if isinstance(content, Mapping):
        features = content.get("features")
        return features if isinstance(features, list) else [content]
    return []


def _properties(feature: Mapping[str, object]) -> Mapping[str, object]:
    properties = feature.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _name(feature: Mapping[str, object]) -> str:
    name = _properties(feature).get("name", feature.get("id"))
    return str(name)[:100] if isinstance(name, str | int) and not isinstance(name, bool) else ""


def _category(feature: Mapping[str, object]) -> str:
    category = _properties(feature).get("classification")
    if isinstance(category, Mapping):
        category = category.get("name")
    return category[:100] if isinstance(category, str) else ""


def _plane(geometry: object, feature: Mapping[str, object]) -> int | None:
    """The plane that QuPath writes beside a shape."""
    for holder in (geometry, feature):
        plane = holder.get("plane") if isinstance(holder, Mapping) else None
        z = plane.get("z") if isinstance(plane, Mapping) else None
        if isinstance(z, int) and 0 <= z < 2**16:
            return z
    return None


def _rings_of(geometry: object) -> Iterator[Ring]:
    if not isinstance(geometry, Mapping):
        return
    coordinates = geometry.get("coordinates")
    match geometry.get("type"):
        case "Polygon" if isinstance(coordinates, list):
            yield from map(_ring, coordinates)
        case "MultiPolygon" if isinstance(coordinates, list):
            for polygon in coordinates:
                yield from map(_ring, polygon)
        case "GeometryCollection":
            geometries = geometry.get("geometries")
            for part in geometries if isinstance(geometries, list) else ():
                yield from _rings_of(part)


def _ring(points: object) -> Ring:
    if not isinstance(points, list) or len(points) < 3:
        raise ValueError("a ring of fewer than three points")
    array = np.array(points)
    if array.dtype.kind not in "iuf" or array.ndim != 2 or array.shape[1] < 2:
        raise ValueError("points that are no pairs of numbers")
    return array[:, :2].astype(np.float64)
