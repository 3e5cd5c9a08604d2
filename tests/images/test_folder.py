"""What a folder of images must be, and what is said where it is not."""

import contextlib
import errno
import hashlib
import io
import os
import random
import re
import struct
import zlib
from pathlib import Path

import cv2
import imagecodecs
import numpy as np
import pytest
import tifffile

from cellrepro.errors import BadInput
from cellrepro.images import reading
from cellrepro.images.folder import folder_digest, read_folder
from cellrepro.images.reading import read_image, read_masks


def grey(seed=0, shape=(24, 32), dtype=np.uint8):
    return np.random.default_rng(seed).integers(0, 200, shape).astype(dtype)


def labels(shape=(24, 32), dtype=np.uint16):
    masks = np.zeros(shape, dtype)
    masks[2:6, 2:6] = 1
    masks[10:14, 5:12] = 2
    return masks


def write(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() in (".tif", ".tiff"):
        options.setdefault("photometric", "minisblack")
        tifffile.imwrite(path, array, **options)
    elif path.suffix.lower() == ".png":
        path.write_bytes(imagecodecs.png_encode(array))
    else:
        path.write_bytes(imagecodecs.jpeg_encode(array, level=95))


@pytest.fixture
def folder(tmp_path):
    """Two training images and one test image, all sound."""
    for number, name in enumerate(("train/a", "train/b", "test/c")):
        write(tmp_path / f"{name}.tif", grey(number))
        write(tmp_path / f"{name}_masks.tif", labels())
    return tmp_path


# --- sound folders --------------------------------------------------------------------------------


def test_reads_pairs_with_digests(folder):
    actual = read_folder(folder)
    assert [item.name for item in actual.train] == ["a", "b"]
    assert [item.name for item in actual.test] == ["c"]
    assert actual.warnings == ()
    np.testing.assert_array_equal(actual.train[1].image, grey(1))
    np.testing.assert_array_equal(actual.train[1].masks, labels())
    assert actual.train[1].masks.dtype == np.int32
    assert actual.train[0].image_path == folder / "train/a.tif"
    assert actual.train[0].masks_path == folder / "train/a_masks.tif"
    assert sorted(actual.files) == [
        f"{name}{ending}.tif"
        for name in ("test/c", "train/a", "train/b")
        for ending in ("", "_masks")
    ]
    for name, digest in actual.files.items():
        assert digest == hashlib.sha256((folder / name).read_bytes()).hexdigest()


def test_digest_is_that_of_sorted_sha256sum_lines(folder):
    lines = sorted(
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(folder).as_posix()}\n"
        for file in folder.rglob("*.tif")
    )
    expected = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert read_folder(folder).digest == folder_digest(folder).digest == expected
    assert folder_digest(folder).files == read_folder(folder).files


@pytest.mark.parametrize("change", ["pixel", "name", "split"])
def test_digest_notices(folder, change):
    before = folder_digest(folder).digest
    if change == "pixel":
        write(folder / "train/a.tif", grey(7))
    else:
        new = "train/z" if change == "name" else "test/a"
        (folder / "train/a.tif").rename(folder / f"{new}.tif")
        (folder / "train/a_masks.tif").rename(folder / f"{new}_masks.tif")
    assert folder_digest(folder).digest != before


IMAGES = {
    "grey 16-bit tiff": ("a.tiff", grey(dtype=np.uint16) * 300, {}, None),
    "float32": ("a.tif", grey(dtype=np.float32) / 7, {}, None),
    "big-endian": ("a.tif", grey(dtype=">u2"), {"byteorder": ">"}, grey(dtype=np.uint16)),
    "upper-case name": ("A.TIF", grey(), {}, None),
    "lzw with predictor": ("a.tif", grey(), {"compression": "lzw", "predictor": True}, None),
    "one channel first": ("a.tif", grey()[None], {}, grey()),
    "rgb tif": ("a.tif", grey(shape=(24, 32, 3)), {"photometric": "rgb"}, None),
    "two channels last": ("a.tif", grey(shape=(24, 32, 2)), {}, None),
    "16-bit png": ("a.png", grey(dtype=np.uint16) * 300, {}, None),
    "rgb png": ("a.png", grey(shape=(24, 32, 3)), {}, None),
}


@pytest.mark.parametrize("case", IMAGES)
def test_image_kinds(tmp_path, case):
    name, array, options, expected = IMAGES[case]
    write(tmp_path / name, array, **options)
    expected = array if expected is None else expected
    write(tmp_path / f"{Path(name).stem}_masks.tif", labels(expected.shape[:2]))
    actual = read_folder(tmp_path)
    assert actual.warnings == ()
    np.testing.assert_array_equal(actual.train[0].image, expected, strict=True)
    assert actual.train[0].image.dtype.isnative


@pytest.mark.parametrize(
    "options",
    [
        {"photometric": "minisblack"},
        {"photometric": "rgb", "planarconfig": "separate"},
        {"imagej": True, "metadata": {"axes": "CYX"}},
        {"ome": True, "metadata": {"axes": "CYX"}, "photometric": "minisblack"},
        {"metadata": None, "photometric": "minisblack"},
    ],
    ids=["pages", "planar rgb", "imagej", "ome", "no metadata"],
)
def test_channel_first_becomes_channel_last(tmp_path, options):
    array = grey(shape=(3, 24, 32))
    tifffile.imwrite(tmp_path / "a.tif", array, **options)
    np.testing.assert_array_equal(read_image(tmp_path / "a.tif"), np.moveaxis(array, 0, 2))


@pytest.mark.parametrize("suffix", [".png", ".tif"])
@pytest.mark.parametrize("constant", [True, False])
def test_alpha_is_dropped(tmp_path, suffix, constant):
    array = grey(shape=(24, 32, 4))
    if constant:
        array[..., 3] = 255
    options = {"photometric": "rgb", "extrasamples": ["unassalpha"]} if suffix == ".tif" else {}
    write(tmp_path / f"a{suffix}", array, **options)
    write(tmp_path / "a_masks.png", labels())
    actual = read_folder(tmp_path)
    np.testing.assert_array_equal(actual.train[0].image, array[..., :3])
    expected = () if constant else (f"a{suffix}: the alpha channel is not constant and is not",)
    assert len(actual.warnings) == len(expected)
    assert all(a.startswith(e) for a, e in zip(actual.warnings, expected, strict=True))


@pytest.mark.parametrize("shape", [(40, 48), (40, 48, 3)], ids=["grey", "rgb"])
@pytest.mark.parametrize("suffix", [".jpg", ".jpeg"])
def test_jpeg_with_png_mask_as_opencv_reads_it(tmp_path, shape, suffix):
    write(tmp_path / f"a{suffix}", cv2.blur(grey(shape=shape), (5, 5)))
    write(tmp_path / "a_masks.png", labels(shape[:2]))
    expected = cv2.imread(str(tmp_path / f"a{suffix}"), cv2.IMREAD_UNCHANGED)
    actual = read_folder(tmp_path).train[0].image
    np.testing.assert_array_equal(actual, expected[..., ::-1] if expected.ndim == 3 else expected)


def test_natural_order_whatever_the_order_of_creation(tmp_path):
    expected = ["img_1", "img_2", "img_02", "img_10", "img_100", "x"]
    digests = set()
    for seed in range(3):
        order = list(expected)
        random.Random(seed).shuffle(order)
        for name in order:
            write(tmp_path / f"{seed}/{name}.tif", grey(len(name)))
            write(tmp_path / f"{seed}/{name}_masks.tif", labels())
        actual = read_folder(tmp_path / str(seed))
        names = [item.name for item in actual.train]
        assert sorted(names) == sorted(expected)
        assert [n for n in names if n != "img_02"] == [n for n in expected if n != "img_02"]
        digests.add((actual.digest, *names))
    assert len(digests) == 1


def test_other_files_are_ignored(folder):
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", "train/._a.tif", "train/Thumbs.db"):
        (folder / name).write_text("left by a desktop")
    for name in ("README.md", "LICENSE", "SHA256SUMS", "train/.hidden.tif", "train/a_seg.npy"):
        (folder / name).write_text("not an image")
    for name in ("a_flows.tif", "a_cp_masks.png", "a_cp_output.tif", "a_cellprob.tif"):
        (folder / "train" / name).write_text("not an image")
    (folder / "train" / "models").mkdir()
    assert len(read_folder(folder).files) == 6


def test_loose_images_beside_train_are_named(folder):
    write(folder / "loose.tif", grey())
    (warning,) = read_folder(folder).warnings
    assert warning.startswith("1 images beside train/ and test/ are not used (loose.tif)")


def test_masks_are_optional_where_asked(tmp_path):
    write(tmp_path / "test/a.tif", grey())
    actual = read_folder(tmp_path, need_masks=False, need_train=False)
    assert actual.train == ()
    assert actual.test[0].masks is None
    assert actual.test[0].masks_path is None
    assert list(actual.files) == ["test/a.tif"]


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.uint64])
def test_mask_types(tmp_path, dtype):
    write(tmp_path / "a_masks.tif", labels(dtype=dtype))
    expected = labels(dtype=np.int32)
    np.testing.assert_array_equal(read_masks(tmp_path / "a_masks.tif"), expected, strict=True)
    masks = labels(dtype=np.int64)
    masks[masks == 2] = 2**31 - 1
    write(tmp_path / "b_masks.tif", masks)
    assert read_masks(tmp_path / "b_masks.tif").max() == 2**31 - 1


def test_pieces_use_eight_neighbours():
    masks = np.array([[1, 0, 2, 2], [0, 1, 0, 0], [9, 0, 0, 9]])
    assert reading.labels_in_pieces(masks) == [9]


# --- warnings -------------------------------------------------------------------------------------


def masks_with(value_map, dtype=np.uint16):
    masks = labels(dtype=np.int64)
    return np.vectorize(lambda value: value_map.get(value, value))(masks).astype(dtype)


WARNINGS = {
    "binary 255": ("train/a_masks.tif", masks_with({1: 255, 2: 255}), "looks like a binary mask"),
    "binary 1": ("train/a_masks.tif", masks_with({2: 1}), "looks like a binary mask"),
    "binary bool": ("train/a_masks.tif", labels() > 0, "looks like a binary mask"),
    "pieces": ("train/a_masks.tif", masks_with({2: 7, 1: 7}), r"pieces \(8-connectivity\): 7;"),
    "float labels": ("train/a_masks.tif", labels(dtype=np.float32), "labels stored as float32"),
    "empty mask": ("train/a_masks.tif", labels() * 0, "no object, all background"),
    "constant image": ("train/a.tif", grey() * 0 + 9, "constant image, every pixel is 9"),
    "fourth channel": ("train/a.tif", grey(shape=(4, 24, 32)), "channel 4 is not constant"),
    "white is zero": ("train/a.tif", grey(), "white is zero"),
}


@pytest.mark.parametrize("case", WARNINGS)
def test_warns(folder, case):
    name, array, match = WARNINGS[case]
    write(folder / name, array, photometric="miniswhite" if "white" in case else "minisblack")
    (warning,) = read_folder(folder).warnings
    assert warning.startswith(f"{name}: ")
    assert re.search(match, warning)


@pytest.mark.parametrize("encode", ["same file", "other file"])
def test_warns_of_leak(folder, encode):
    options = {"compression": "zlib"} if encode == "other file" else {}
    write(folder / "test/c.tif", grey(1), **options)
    (warning,) = read_folder(folder).warnings
    assert warning.startswith("leak: test/c.tif holds the same image as train/b.tif")


# --- refusals -------------------------------------------------------------------------------------


def tiff(array, **options):
    stream = io.BytesIO()
    tifffile.imwrite(stream, array, **options)
    return stream.getvalue()


def jpeg(array=None):
    return imagecodecs.jpeg_encode(grey() if array is None else array)


def planes(n, axes):
    return tiff(grey(shape=(n, 24, 32)), imagej=True, metadata={"axes": axes})


def several_sizes():
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as writer:
        writer.write(grey(), photometric="minisblack")
        writer.write(grey(shape=(40, 48)), photometric="minisblack")
    return stream.getvalue()


def palette():
    """A PNG of colours by number; cv2 and imagecodecs write none."""

    def chunk(kind, data):
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    rows = b"".join(b"\0" + bytes(row) for row in labels(dtype=np.uint8))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 32, 24, 8, 3, 0, 0, 0))
    body = chunk(b"PLTE", bytes(range(9))) + chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + header + body + chunk(b"IEND", b"")


CMYK = imagecodecs.jpeg8_encode(grey(shape=(24, 32, 4)), colorspace="CMYK", outcolorspace="CMYK")
ABSURD = imagecodecs.png_encode(grey())[:16] + b"\0\1\0\0\0\1\0\0\x08\0" + bytes(30)
ZLIB = tiff(grey(), compression="zlib")
AGAIN = "copy it again"

FILES = {
    # in the place of train/a.tif: its name, its bytes or pixels, found and remedy
    "zero bytes": ("a.tif", b"", rf"empty \(0 bytes\); {AGAIN}"),
    "text as tif": ("a.tif", b"hello, it", "not a TIFF file, it starts with b'hello.*; export"),
    "git lfs": ("a.tif", b"version https://git-lfs.github.com/spec/v1", "pointer.*; run git lfs"),
    "png named tif": ("a.tif", imagecodecs.png_encode(grey()), "holds PNG .*; rename it to a.png"),
    "cut tiff": ("a.tif", tiff(grey())[:-300], f"damaged or incomplete.*; {AGAIN}"),
    "cut channels": ("a.tif", planes(3, "CYX")[:-900], f"damaged or incomplete.*; {AGAIN}"),
    "cut jpeg in tiff": (
        "a.tif",
        tiff(grey(), compression="jpeg")[:-40],
        f"its pixels should end at byte.*; {AGAIN}",
    ),
    "only a header": ("a.tif", b"II*\0\x08\0\0\0", f"damaged or incomplete.*; {AGAIN}"),
    "changed bytes": (
        "a.tif",
        ZLIB[:-200] + b"\xff" * 200,
        f"cannot be decoded as TIFF.*; {AGAIN}",
    ),
    "cut png": ("a.png", imagecodecs.png_encode(grey())[:-60], f"be decoded as PNG.*; {AGAIN}"),
    "absurd png": ("a.png", ABSURD, f"its header promises.*; {AGAIN}"),
    "cut jpeg": ("a.jpg", jpeg()[:-60], f"end-of-image marker is missing.*; {AGAIN}"),
    "cmyk jpeg": ("a.jpg", CMYK, "CMYK.*; convert it to RGB"),
    "cmyk tiff": (
        "a.tif",
        tiff(grey(shape=(24, 32, 4)), photometric="separated"),
        "CMYK.*; convert it to RGB",
    ),
    "nan": ("a.tif", np.where(grey() > 190, np.nan, grey()), r"\d+ of 768 values are NaN.*; repl"),
    "complex": ("a.tif", grey(dtype=np.complex64), "pixels of type complex64.*; save the image"),
    "one row": ("a.tif", grey(shape=(1, 32)), r"\(1, 32\), expected at least 16 pixels.*; .*expo"),
    "stack of pages": ("a.tif", grey(shape=(9, 24, 32)), r"\(axes QYX\) looks like a z-stack.*; "),
    "short z-stack": ("a.tif", planes(3, "ZYX"), "is a z-stack of 3 planes.*; .*a projection"),
    "time series": ("a.tif", planes(4, "TYX"), "is a time series of 4 planes.*; .*a projection"),
    "four dimensions": ("a.tif", grey(shape=(5, 2, 24, 32)), "expected one plane.*; .*projection"),
    "five channels": ("a.tif", planes(5, "CYX"), "has 5 channels, Cellpose reads up to 3; save"),
    "pages of several sizes": ("a.tif", several_sizes(), "2 separate images of shapes .*; save"),
}
MASKS = {
    # in the place of train/a_masks.tif
    "jpeg": ("a_masks.jpg", jpeg(), "JPEG changes label numbers; save the labels as a_masks.tif"),
    "palette": ("a_masks.png", palette(), "a palette of colours.*; .*16-bit grey"),
    "cut": ("a_masks.tif", ZLIB[:-99], f"damaged or incomplete.*; {AGAIN}"),
    "another shape": ("a_masks.tif", labels((24, 30)), r"\(24, 30\), expected \(24, 32\).*belong"),
    "transposed": ("a_masks.tif", labels().T, r"\(32, 24\), expected \(24, 32\).*X swapped"),
    "fractions": ("a_masks.tif", labels(dtype=np.float32) / 2, "16 labels are fractions.*; .*16-b"),
    "negative": ("a_masks.tif", -labels(dtype=np.int16), "negative labels down to -2.*; renumber"),
    "beyond int32": ("a_masks.tif", labels(dtype=np.uint64) * 2**31, "up to 4294967296, expected"),
    "complex": ("a_masks.tif", labels(dtype=np.complex64), "labels of type complex64.*; save"),
    "colours": ("a_masks.tif", grey(shape=(24, 32, 3)), r"shape \(24, 32, 3\).*one plane.*; save"),
    "stack": ("a_masks.tif", grey(shape=(6, 24, 32)), r"shape \(6, 24, 32\).*one plane.*; save"),
}


@pytest.mark.parametrize(
    ("stem", "case"), [*(("a", case) for case in FILES), *(("a_masks", case) for case in MASKS)]
)
def test_refuses_a_file(folder, stem, case):
    name, content, match = (FILES if stem == "a" else MASKS)[case]
    (folder / f"train/{stem}.tif").unlink()
    path = folder / "train" / name
    path.write_bytes(content) if isinstance(content, bytes) else write(path, content)
    with pytest.raises(BadInput, match=match) as caught:
        read_folder(folder)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def replace(f, make):
    (f / "train/a.tif").unlink()
    make(f / "train/a.tif")


NAMES = {
    # what to do to the sound folder, the file named, found and remedy
    "mask without image": (
        lambda f: (f / "train/a.tif").unlink(),
        "train/a_masks.tif",
        "a mask without its image, expected a.tif.*; add the image or remove the mask",
    ),
    "image named in another case": (
        lambda f: (f / "train/a_masks.tif").rename(f / "train/A_masks.tif"),
        "train/A_masks.tif",
        "a mask without its image.*; a.tif is written differently",
    ),
    "image without mask": (
        lambda f: (f / "train/a_masks.tif").unlink(),
        "train/a.tif",
        "no mask, expected a_masks.tif.*; add it, or move the image",
    ),
    "masks only in seg.npy": (
        lambda f: (f / "train/a_masks.tif").rename(f / "train/a_seg.npy"),
        "train/a.tif",
        "no mask, expected a_masks.tif.*; .*open it in the Cellpose GUI",
    ),
    "two extensions": (
        lambda f: write(f / "train/a.png", grey()),
        "train/a.tif",
        "the same name as a.png up to case and extension.*; rename or remove one",
    ),
    "two cases": (
        lambda f: (write(f / "train/B.tif", grey()), write(f / "train/B_masks.tif", labels())),
        "train/b.tif",
        "the same name as B.tif up to case and extension.*; rename or remove one",
    ),
    "symlink loop": (
        lambda f: replace(f, lambda path: path.symlink_to(path)),
        "train/a.tif",
        "a symbolic link that leads back to itself; replace it",
    ),
    "broken link": (
        lambda f: replace(f, lambda path: path.symlink_to("nowhere.tif")),
        "train/a.tif",
        "a link that leads nowhere.*; check the spelling",
    ),
    "folder named as an image": (
        lambda f: replace(f, lambda path: path.mkdir()),
        "train/a.tif",
        "a folder, but the name promises an image file; rename or remove it",
    ),
    "pipe named as an image": (
        lambda f: replace(f, os.mkfifo),
        "train/a.tif",
        "neither a file nor a folder.*; rename or remove it",
    ),
    "line feed in a name": (
        lambda f: (f / "train/a.tif").rename(f / "train/a\nb.tif"),
        r"train/'a\nb.tif'",
        "cannot be printed.*; rename the file",
    ),
    "train is a file": (
        lambda f: ((f / "train").rename(f / "old"), (f / "train").write_text("")),
        "train",
        "must be a folder of images; rename or remove it",
    ),
    "only test": (
        lambda f: (f / "train").rename(f / "old"),
        "",
        "holds test/ but no train/.*; add .*train",
    ),
    "no objects at all": (
        lambda f: [write(f / f"train/{n}_masks.tif", labels() * 0) for n in "ab"],
        "",
        "none of the 2 training masks holds an object.*; check that the right masks",
    ),
}


@pytest.mark.parametrize("case", NAMES)
def test_refuses_names_and_folders(folder, case):
    spoil, file, match = NAMES[case]
    spoil(folder)
    with pytest.raises(BadInput, match=match) as caught:
        read_folder(folder)
    assert f"{folder}{'/' if file else ''}{file}: " in str(caught.value)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda p: None, "no such folder.*check the spelling"),
        (lambda p: p.write_text("x"), "a file, but a folder of images was expected"),
        (lambda p: p.mkdir(), "no images, it is empty; expected NAME.tif"),
        (lambda p: p.symlink_to(p), "leads back to itself"),
        (lambda p: [p.mkdir(), (p / "notes.txt").write_text("")], "it holds notes.txt"),
        (lambda p: (p / "Train").mkdir(parents=True), "it holds Train; .*train/ and test/"),
        (lambda p: (p / "train").mkdir(parents=True), "train: no images, it is empty"),
    ],
    ids=["missing", "file", "empty", "loop", "no images", "wrong case", "empty train"],
)
@pytest.mark.parametrize("read", [read_folder, folder_digest])
def test_refuses_folder(tmp_path, make, match, read):
    make(tmp_path / "set")
    with pytest.raises(BadInput, match=match) as caught:
        read(tmp_path / "set")
    assert str(tmp_path / "set") in str(caught.value)


def test_empty_test_folder_is_mentioned(folder):
    for file in (folder / "test").iterdir():
        file.unlink()
    assert read_folder(folder).warnings == ("test/ holds no images",)


@pytest.mark.parametrize(
    ("code", "match"),
    [
        (errno.EACCES, r"a.tif: permission denied; make the file readable"),
        (errno.EIO, r"a.tif: cannot be read \(Input/output error\); check the disk"),
    ],
    ids=["permission", "disk"],
)
def test_system_refuses_file(folder, monkeypatch, code, match):
    # the superuser may read everything, so the refusal is played
    read_bytes = Path.read_bytes

    def refuse(path):
        if path.name == "a.tif":
            raise OSError(code, os.strerror(code), str(path))
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(BadInput, match=match):
        read_folder(folder)


def test_all_problems_in_one_message_up_to_ten(folder):
    (folder / "train/a.tif").write_bytes(b"")
    (folder / "train/b_masks.tif").unlink()
    write(folder / "test/c_masks.tif", labels((20, 20)))
    with pytest.raises(BadInput) as caught:
        read_folder(folder)
    first, *lines = str(caught.value).splitlines()
    assert first == f"{folder} has 3 problems:"
    assert len(lines) == 3
    assert all(line.startswith(f"- {folder}/t") for line in lines)
    for number in range(10):
        write(folder / f"test/{number}.tif", grey())
    with pytest.raises(BadInput) as caught:
        read_folder(folder)
    assert len(str(caught.value).splitlines()) == 12
    assert str(caught.value).endswith("\n- and 3 more")


def test_unknown_extension(tmp_path):
    (tmp_path / "a.bmp").write_bytes(b"BM")
    with pytest.raises(BadInput, match=r"a.bmp: expected an image file .*convert it first"):
        read_image(tmp_path / "a.bmp")


@pytest.mark.parametrize(
    "source",
    [
        tiff(grey()),
        tiff(grey(), compression="zlib", predictor=True, tile=(16, 16)),
        tiff(grey(), compression="lzw", rowsperstrip=5),
        tiff(grey(shape=(3, 24, 32)), ome=True, metadata={"axes": "CYX"}, photometric="minisblack"),
        imagecodecs.png_encode(grey(shape=(24, 32, 3))),
        jpeg(grey(shape=(24, 32, 3))),
    ],
    ids=["raw", "tiles", "lzw", "ome", "png", "jpeg"],
)
def test_damaged_file_is_refused_or_read_never_a_traceback(tmp_path, source, capfd):
    """Whatever the damage: pixels or `BadInput`, and a file cut within its data never passes."""
    suffix = next(s for start, s in ((b"\x89", ".png"), (b"\xff", ".jpg"), (b"I", ".tif"))
                  if source.startswith(start))  # fmt: skip
    file = tmp_path / f"a{suffix}"
    generator = random.Random(0)
    for _ in range(60):
        damaged = bytearray(source)
        for _ in range(generator.randint(1, 4)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        file.write_bytes(damaged)
        with contextlib.suppress(BadInput):
            assert read_image(file).ndim in (2, 3)
        # the last 12 bytes of a PNG mark its end and hold no pixels
        length = generator.randint(1, len(source) - (13 if suffix == ".png" else 1))
        file.write_bytes(source[:length])
        with pytest.raises(BadInput):
            read_image(file)
    assert capfd.readouterr().err == ""
