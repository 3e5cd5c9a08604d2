"""What a folder of images must be, and what is said where it is not."""

import contextlib
import hashlib
import io
import os
import random
import re

import cv2
import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image

from cellrepro.images.folder import folder_digest, read_folder
from cellrepro.images.image_axes import Axes
from cellrepro.images.image_file import image_in, read_image, read_labels, read_masks
from samebits.errors import BadInput, NotPossibleHere


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


def test_reads_pairs_with_the_digest_of_sorted_sha256sum_lines(folder):
    actual = read_folder(folder)
    assert [item.name for item in actual.train] == ["a", "b"]
    assert [item.name for item in actual.test] == ["c"]
    assert actual.warnings == ()
    np.testing.assert_array_equal(actual.train[1].image, grey(1))
    np.testing.assert_array_equal(actual.train[1].masks, labels(dtype=np.int32), strict=True)
    parts = ("test/c", "train/a", "train/b")
    assert sorted(actual.files) == [f"{part}{end}.tif" for part in parts for end in ("", "_masks")]
    for name, digest in actual.files.items():
        assert digest == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    lines = sorted(f"{digest}  {name}\n" for name, digest in actual.files.items())
    expected = hashlib.sha256("".join(lines).encode()).hexdigest()
    assert actual.digest == folder_digest(folder) == expected


def test_digest_notices_names(folder):
    before = folder_digest(folder)
    for ending in ("", "_masks"):
        (folder / f"train/a{ending}.tif").rename(folder / f"test/a{ending}.tif")
    assert folder_digest(folder) != before


@pytest.mark.parametrize(
    ("name", "array", "options"),
    [
        ("A.TIFF", grey(dtype=np.float32) / 7, {}),
        ("a.tif", grey(), {"byteorder": ">", "compression": "lzw", "predictor": True}),
        ("a.tif", grey(shape=(24, 32, 2)), {}),
        ("a.png", grey(shape=(24, 32, 3), dtype=np.uint16) * 300, {}),
    ],
)
def test_image_kinds(tmp_path, name, array, options):
    write(tmp_path / name, array, **options)
    np.testing.assert_array_equal(read_image(tmp_path / name), array, strict=True)


@pytest.mark.parametrize(
    "options",
    [
        {"photometric": "rgb", "planarconfig": "separate", "byteorder": ">"},
        {"imagej": True, "metadata": {"axes": "CYX"}},
        {"ome": True, "metadata": {"axes": "CYX"}, "photometric": "minisblack"},
    ],
)
def test_channel_first_becomes_channel_last(tmp_path, options):
    array = grey(shape=(3, 24, 32), dtype=np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", array, **options)
    expected = np.moveaxis(array, 0, 2)
    np.testing.assert_array_equal(read_image(tmp_path / "a.tif"), expected, strict=True)


@pytest.mark.parametrize("name", ["a.png", "a.tif"])
def test_alpha_is_dropped(folder, name):
    array = grey(shape=(24, 32, 4))
    options = {"photometric": "rgb", "extrasamples": ["unassalpha"]} if ".tif" in name else {}
    for constant in (False, True):
        (folder / "train" / "a.tif").unlink(missing_ok=True)
        write(folder / "train" / name, array, **options)
        actual = read_folder(folder)
        np.testing.assert_array_equal(actual.train[0].image, array[..., :3])
        assert len(actual.warnings) == 1 - constant
        array[..., 3] = 255


def several(n_channels, *varying):
    """Channels, along the last axis, of which these vary, counted from 1."""
    array = np.full((24, 32, n_channels), 7, np.uint8)
    for number in varying:
        array[..., number - 1] = grey(number)
    return array


@pytest.mark.parametrize(
    ("name", "array", "n_used", "expected"),
    [
        ("a.tif", several(6, 1, 2, 3, 4, 5, 6), 3, "channels 4 to 6 are not all constant"),
        ("a.tif", several(6, 1, 5), 3, "channels 4 to 6 are not all constant"),
        ("a.tif", several(6, 1, 2, 3), 3, None),
        ("a.tif", several(4, 1, 4), 3, "its last channel .* is not constant"),
        ("a.tif", several(3, 1, 3), 3, None),
        ("a.png", several(2, 1, 2), 2, None),
    ],
    ids=["six", "the last constant", "unused constant", "four", "all used", "alpha is used"],
)
def test_channels_that_are_left_out_are_named_where_their_axis_is_stated(
    tmp_path, name, array, n_used, expected
):
    write(tmp_path / name, array)
    found = image_in(tmp_path / name, Axes(channel=2))
    np.testing.assert_array_equal(found.pixels, array[..., :n_used])
    assert len(found.remarks) == (expected is not None)
    assert all(re.search(expected, remark) for remark in found.remarks)


def test_jpeg_as_opencv_reads_it(tmp_path):
    write(tmp_path / "a.jpg", cv2.blur(grey(shape=(40, 48, 3)), (5, 5)))
    expected = cv2.imread(str(tmp_path / "a.jpg"), cv2.IMREAD_UNCHANGED)[..., ::-1]
    np.testing.assert_array_equal(read_image(tmp_path / "a.jpg"), expected)


def test_other_files_are_ignored_masks_optional_where_asked_and_the_order_natural(folder):
    for name in (
        *(".DS_Store", "Thumbs.db", "README.md", "SHA256SUMS", "train/._a.tif", "train/a_seg.npy"),
        *("train/a_flows.tif", "train/a_cp_masks.png", "train/a_cellprob.tif"),
    ):
        (folder / name).write_text("not an image")
    (folder / "train" / "models").mkdir()
    assert len(read_folder(folder).files) == 6
    expected = ["img_1", "img_02", "img_2", "img_10", "img_100", "x"]
    for name in expected[::-1]:
        write(folder / f"test/{name}.tif", grey(len(name)))
    actual = read_folder(folder, to_train=False)
    assert [item.name for item in actual.test] == ["c", *expected]
    assert actual.test[-1].masks is None


def test_what_is_not_used_and_what_leaks_is_named(folder):
    write(folder / "test/c.tif", grey(1), compression="zlib")  # another file, the same pixels
    (warning,) = read_folder(folder).warnings
    assert warning.startswith("leak: test/c.tif holds the same image as train/b.tif")
    write(folder / "loose.tif", grey())
    for file in (folder / "test").iterdir():
        file.unlink()
    loose, empty = read_folder(folder).warnings
    assert loose.startswith("1 image next to train/ and test/ is not used (loose.tif)")
    assert "test: no images" in empty


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.float32])
def test_mask_types(tmp_path, dtype):
    write(tmp_path / "a_masks.tif", labels(dtype=dtype))
    expected = labels(dtype=np.int32)
    np.testing.assert_array_equal(read_masks(tmp_path / "a_masks.tif"), expected, strict=True)
    masks = labels(dtype=np.int64) * (2**30 - 1)
    write(tmp_path / "b_masks.tif", masks)
    assert read_masks(tmp_path / "b_masks.tif").max() == 2**31 - 2


def test_labels_to_compare(tmp_path):
    """Stacks, series, arrays of `numpy.save`, whole numbers as floats; no pickles."""
    stack = np.stack([labels(dtype=np.uint32) * 2**31] * 5)
    tifffile.imwrite(tmp_path / "a.tif", stack[:, :, :30], metadata={"axes": "ZYX"})
    np.testing.assert_array_equal(read_labels(tmp_path / "a.tif"), stack[:, :, :30], strict=True)
    np.save(tmp_path / "a.npy", labels(dtype=np.float32))
    np.testing.assert_array_equal(
        read_labels(tmp_path / "a.npy"), labels(dtype=np.int64), strict=True
    )
    tifffile.imwrite(tmp_path / "t.tif", stack, metadata={"axes": "TYX"})
    np.testing.assert_array_equal(read_labels(tmp_path / "t.tif"), stack, strict=True)
    np.save(tmp_path / "b.npy", np.array([print, None]), allow_pickle=True)
    (tmp_path / "c.npy").write_bytes(b"\x93NUMPY\x01\x00")
    for name in ("b.npy", "c.npy"):
        with pytest.raises(BadInput, match=f"{name}: .*save"):
            read_labels(tmp_path / name)


@pytest.mark.parametrize("shape", [(3, 24, 32), (4, 24, 32), (24, 32, 3)], ids=str)
def test_a_stack_that_tifffile_calls_colours_is_read_as_it_was_saved(shape, tmp_path):
    """As `cellpose.io.imsave` writes it: 16 bits, no word of axes."""
    planar = "contig" if shape[-1] == 3 else "separate"  # as it chooses
    stack = np.zeros(shape, np.uint16)
    stack[1:3, 3:9, 1:7] = 700
    tifffile.imwrite(tmp_path / "a_masks.tif", stack, photometric="rgb", planarconfig=planar)
    np.testing.assert_array_equal(read_labels(tmp_path / "a_masks.tif"), stack, strict=True)


one_label = labels() > 0
pieces = one_label * np.uint16(7)
pieces[20, 20] = pieces[21, 21] = 3  # touch at a corner, which is one piece

MASKS_AS_IMAGE = np.kron(np.arange(12, dtype=np.uint16).reshape(3, 4), np.ones((8, 8), np.uint16))

WARNINGS = {
    "binary": ("train/a_masks.tif", one_label * np.uint8(255), "pieces .*: 255; .*binary mask"),
    "pieces": ("train/a_masks.tif", pieces, r"pieces \(8-connectivity\): 7;"),
    "empty mask": ("train/a_masks.tif", labels() * 0, "no cell, all background"),
    "constant image": ("train/a.tif", grey() * 0 + 9, "constant image, every pixel is 9"),
    "masks as image": ("train/a.tif", MASKS_AS_IMAGE, "as the numbers of masks do"),
    "fourth channel": ("train/a.tif", grey(shape=(4, 24, 32)), "last channel .* is not constant"),
}


@pytest.mark.parametrize("case", WARNINGS)
def test_warns(folder, case):
    name, array, match = WARNINGS[case]
    write(folder / name, array)
    (warning,) = read_folder(folder).warnings
    assert warning.startswith(f"{name}: ")
    assert re.search(match, warning)


def test_what_has_the_name_of_a_result_is_passed_over_with_a_word(folder):
    write(folder / "train/blood_flows.tif", grey())
    write(folder / "train/a_flows.tif", grey())
    write(folder / "train/a_cp_masks.tif", labels())
    warnings = read_folder(folder).warnings
    assert [("blood_flows" in one, "a_flows" in one) for one in warnings] == [
        (True, False),
        (False, True),
    ]
    (of_segmentation,) = read_folder(folder, to_train=False).warnings
    assert "blood_flows" in of_segmentation


def test_masks_of_cellposes_command_line_are_to_be_renamed(folder):
    (folder / "train/a_masks.tif").rename(folder / "train/a_cp_masks.tif")
    with pytest.raises(BadInput, match=r"rename a_cp_masks\.tif.* to a_masks\.tif"):
        read_folder(folder)


def test_masks_of_the_gui_are_learnt_where_there_are_no_others(folder):
    """Cellpose takes them, too, with ``--mask_filter _seg.npy``."""
    masks = read_masks(folder / "train/a_masks.tif")
    (folder / "train/a_masks.tif").unlink()
    seg = folder / "train/a_seg.npy"
    np.save(seg, {"masks": masks.astype(np.uint16), "filename": "a.tif", "ismanual": [True]})
    found = read_folder(folder)
    assert np.array_equal(found.train[0].masks, masks)
    assert found.train[0].masks.dtype == np.int32
    assert found.files["train/a_seg.npy"] == hashlib.sha256(seg.read_bytes()).hexdigest()
    assert found.digest == folder_digest(folder)
    (warning,) = found.warnings
    assert "that the Cellpose GUI saved in train/a_seg.npy are taken for the truth" in warning
    alone = read_folder(folder / "train/a.tif", to_train=False)
    assert np.array_equal(alone.train[0].masks, masks)


def test_a_seg_file_that_was_edited_after_the_masks_is_named(folder):
    beside = folder / "train/a_seg.npy"
    beside.touch()
    os.utime(beside, ns=(0, 0))
    assert read_folder(folder).warnings == ()
    os.utime(folder / "train/a_masks.tif", ns=(0, 0))
    os.utime(beside, ns=(10**9, 10**9))
    (warning,) = read_folder(folder).warnings
    assert "a_seg.npy was changed after a_masks.tif" in warning


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
        for shape in ((24, 32), (40, 48)):
            writer.write(grey(shape=shape), photometric="minisblack")
    return stream.getvalue()


def one_by_one():
    stream = io.BytesIO()
    with tifffile.TiffWriter(stream) as writer:
        for _ in range(2):
            writer.write(grey(), photometric="minisblack", contiguous=False)
    return stream.getvalue()


def promising(n_bytes, compression):
    """A TIFF of a few bytes whose header promises 3 times 2**30 of them."""
    stream = io.BytesIO()
    side = 2**15
    tifffile.imwrite(
        stream,
        iter([bytes(n_bytes)]),
        shape=(side, 3 * side),
        dtype="uint8",
        compression=compression,
        tile=(side, 3 * side),
        photometric="minisblack",
    )
    return stream.getvalue()


def palette():
    stream = io.BytesIO()
    Image.fromarray(labels(dtype=np.uint8)).convert("P").save(stream, "PNG")
    return stream.getvalue()


CMYK = imagecodecs.jpeg8_encode(grey(shape=(24, 32, 4)), colorspace="CMYK", outcolorspace="CMYK")
ABSURD = imagecodecs.png_encode(grey())[:16] + b"\0\1\0\0\0\1\0\0\x08\0" + bytes(30)
DAMAGED = "damaged or incomplete.*copy it again"
ONE_PLANE = "expected one plane.*projection"

FILES = {
    # in the place of train/a: its name, its bytes or pixels, and what is said
    "zero bytes": ("a.tif", b"", r"empty \(0 bytes\); copy it again"),
    "git lfs": ("a.tif", b"version https://git-lfs.github.com", "expected TIFF.*git lfs pull"),
    "cut tiff": ("a.tif", tiff(grey())[:-300], DAMAGED),
    "cut jpeg in tiff": ("a.tif", tiff(grey(), compression="jpeg")[:-40], "should end at byte"),
    "only a header": ("a.tif", b"II*\0\x08\0\0\0", DAMAGED),
    "cut png": ("a.png", imagecodecs.png_encode(grey())[:-60], "cannot be decoded as PNG"),
    "absurd png": ("a.png", ABSURD, "its header promises"),
    "cut jpeg": ("a.jpg", jpeg()[:-60], "end-of-image marker is missing"),
    "cmyk jpeg": ("a.jpg", CMYK, "CMYK.*; convert it to RGB"),
    "cmyk tiff": ("a.tif", tiff(grey(shape=(24, 32, 4)), photometric="separated"), "CMYK"),
    "nan": ("a.tif", np.where(grey() > 190, np.nan, grey()), r"\d+ of 768 values are NaN"),
    "complex": ("a.tif", grey(dtype=np.complex64), "pixels of type complex64.*; save the image"),
    "one row": ("a.tif", grey(shape=(1, 32)), r"\(1, 32\), expected at least 16 pixels"),
    "short z-stack": ("a.tif", planes(3, "ZYX"), ONE_PLANE),
    "pages of several sizes": ("a.tif", several_sizes(), "2 separate images of shapes .*; save"),
    "planes one by one": ("a.tif", one_by_one(), "2 separate images .* Cellpose reads the first"),
    "unknown format": ("a_masks.bmp", b"BM", "no mask, expected a_masks.tif"),
    "jpeg masks": ("a_masks.jpg", jpeg(), "JPEG changes label numbers; save .* as a_masks.tif"),
    "palette": ("a_masks.png", palette(), "16-bit grey, not .* with a palette"),
    "another shape": ("a_masks.tif", labels((24, 30)), r"\(24, 30\), expected \(24, 32\).*belong"),
    "transposed": ("a_masks.tif", labels().T, r"\(32, 24\), expected \(24, 32\).*swapped"),
    "fractions": (
        "a_masks.tif",
        labels(dtype=np.float32) / 2,
        r"\d+ labels? in 16 pixels (is a|are) fraction",
    ),
    "too large for floats": ("a_masks.tif", labels(dtype=np.float16) * 3000, "numbers up to 2048"),
    "absurd tiff": (
        "a.tif",
        promising(3, "zstd"),
        "damaged.*its header promises a larger image than a file of",
    ),
    "beyond int32": ("a_masks.tif", labels(dtype=np.uint64) * 2**31, "to 4294967296, expected 0"),
    "colours": ("a_masks.tif", grey(shape=(24, 32, 3)), r"shape \(24, 32, 3\).*one plane.*; save"),
}


@pytest.mark.parametrize("case", FILES)
def test_refuses_a_file(folder, case):
    name, content, match = FILES[case]
    path = folder / "train" / name
    (path.parent / f"{path.stem}.tif").unlink()
    path.write_bytes(content) if isinstance(content, bytes) else write(path, content)
    with pytest.raises(BadInput, match=match) as caught:
        read_folder(folder)
    assert str(caught.value).startswith(f"{folder / 'train'}/a")
    assert "\n" not in str(caught.value)


def test_masks_that_hold_almost_nothing_are_read_however_well_they_are_packed(tmp_path):
    """Whole slides are like that: zstd makes 6 kB of 128 MiB."""
    masks = np.zeros((8192, 8192), np.uint16)
    masks[5:9, 5:9] = 3
    path = tmp_path / "slide_masks.tif"
    tifffile.imwrite(path, masks, compression="zstd", tile=(4096, 4096))
    assert masks.nbytes > 10_000 * path.stat().st_size
    np.testing.assert_array_equal(read_labels(path), masks, strict=True)


def test_more_pixels_than_memory_are_refused_before_any_is_read(tmp_path):
    """As far as its compression goes the file could hold them, so that only the memory decides."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, grey(shape=(64, 64)), compression="zstd", tile=(64, 64))
    with tifffile.TiffFile(path, mode="r+") as tiff:
        for name in ("ImageWidth", "ImageLength", "TileWidth", "TileLength"):
            tiff.pages[0].tags[name].overwrite(2**20)
    with path.open("ab") as stream:
        stream.truncate(2**26)
    with pytest.raises(NotPossibleHere, match="1099511627776 bytes of pixels do not fit"):
        read_labels(path)


def test_truth_of_a_segmentation_must_fit_its_type(folder):
    """Stacks are allowed there, and read by the rules of comparisons; their labels are not."""
    write(folder / "test/c_masks.tif", labels(dtype=np.uint32) * 2**30)
    with pytest.raises(BadInput, match=r"labels from 0 to 2147483648, .* up to 2147483647"):
        read_folder(folder, to_train=False, axes=Axes(stacks=True))


def replace(f, make):
    (f / "train/a.tif").unlink()
    make(f / "train/a.tif")


@pytest.mark.parametrize(
    ("spoil", "message"),  # {} is the folder
    [
        (lambda f: (f / "train/a.tif").unlink(), "{}/train/a_masks.tif: a mask without its image"),
        (
            lambda f: (f / "train/a_masks.tif").unlink(),
            "{}/train/a.tif: no mask, .* or a_seg.npy of the Cellpose GUI, beside it.*; add it, or",
        ),
        (
            lambda f: (f / "train/a_masks.tif").rename(f / "train/a_seg.npy"),
            "{}/train/a_seg.npy: refused, .* Nothing of it was executed",
        ),
        (
            lambda f: (f / "train/a_masks.tif").rename(f / "train/A_masks.tif"),
            "(?s){}/train/a.tif: no mask.* spelled like .*A_masks.tif: a mask without its image",
        ),
        (
            lambda f: write(f / "train/B.png", grey()),
            "{}/train/b.tif: the same name as B.png up to case and extension",
        ),
        (
            lambda f: replace(f, lambda path: path.symlink_to(path)),
            "{}/train/a.tif: the file cannot be read .Too many levels of symbolic links",
        ),
        (lambda f: replace(f, os.mkfifo), "{}/train/a.tif: a device or a pipe"),
        (lambda f: replace(f, os.mkdir), "{}/train/a.tif: a folder, expected one file"),
        (
            lambda f: (f / "train/a.tif").rename(f / "train/a\nb.tif"),
            r"{}/train/'a\\nb.tif': .*cannot be printed.*; rename the file",
        ),
        (lambda f: (f / "train").rename(f / "old"), "{}: none of the 0 training .*lie in train/"),
        (
            lambda f: f.rename(f"{f}-"),
            "{}: no such file or folder; expected images: check its spelling",
        ),
        (
            lambda f: (f.rename(f"{f}-"), f.touch()),
            "{}: a file, expected a folder; give the folder of images",
        ),
        (
            lambda f: [write(f / f"train/{n}_masks.tif", labels() * 0) for n in "ab"],
            "{}: none of the 2 training masks holds an object",
        ),
    ],
)
def test_refuses_names_and_folders(folder, spoil, message):
    spoil(folder)
    with pytest.raises(BadInput, match=message.format(re.escape(str(folder)))) as refused:
        read_folder(folder)
    assert not re.search("remove|delete", str(refused.value))  # it may be somebody's only copy


def test_all_problems_in_one_message_up_to_ten(folder):
    (folder / "train/a.tif").write_bytes(b"")
    (folder / "train/b_masks.tif").unlink()
    write(folder / "test/c_masks.tif", labels((20, 20)))
    for number in range(10):
        write(folder / f"test/{number}.tif", grey())
    with pytest.raises(BadInput) as caught:
        read_folder(folder)
    first, *lines = str(caught.value).splitlines()
    assert first == f"{folder} has 13 problems:"
    *lines, rest = lines
    assert len(lines) == 10
    assert all(line.startswith(f"- {folder}/t") for line in lines)
    assert rest == "- and 3 more"


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
)
def test_damaged_file_is_refused_or_read_never_a_traceback(tmp_path, source, capfd):
    """Whatever the damage: pixels or `BadInput`, and a file cut within its data never passes."""
    suffix = {b"\x89": ".png", b"\xff": ".jpg", b"I": ".tif"}[source[:1]]
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
