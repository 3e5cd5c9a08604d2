"""Faults of what is read of images and masks, and of synthetic and public sets."""

from faults.by_name import breaks


@breaks(
    "cellrepro.images.tiff_strips:refuse_missing_strips",
    "A TIFF whose pixels end early is refused, not filled up with zeros.",
    tests=["tests/images/test_folder.py::test_refuses_a_file[cut jpeg in tiff]"],
)
def a_cut_off_tiff_is_filled_up(refuse_missing_strips):
    return lambda *_: None


@breaks(
    "cellrepro.images.packed_sizes:refuse_absurd",
    "A header that promises more pixels than the file can hold is refused before it is believed.",
    tests=["tests/images/test_folder.py::test_refuses_a_file[absurd tiff]"],
)
def any_size_is_believed(refuse_absurd):
    return lambda *_: None


@breaks(
    "cellrepro.images.folder:_read_pair",
    "Masks whose Y and X are swapped are refused.",
    tests=["tests/images/test_folder.py::test_refuses_a_file[transposed]"],
)
def masks_of_any_shape_fit(read_pair):
    from dataclasses import replace

    def read(pair, survey, axes):
        n_problems = len(survey.problems)
        image = read_pair(pair, survey, axes)
        if image is not None:
            return image
        del survey.problems[n_problems:]
        return read_pair(replace(pair, masks=None), survey, axes)

    return read


@breaks(
    "cellrepro.images.pictures:refuse_picture",
    "A picture that is given for masks is refused.",
    tests=[
        "tests/images/test_label_image.py::test_a_picture_in_a_file_is_refused_wherever_masks_are_read"
    ],
)
def a_picture_is_taken_for_masks(refuse_picture):
    return lambda *_: None


@breaks(
    "cellrepro.images.image_file:_whole_numbers",
    "A probability map or a resized mask is not taken for labels.",
    tests=["tests/images/test_folder.py::test_refuses_a_file[fractions]"],
)
def fractions_are_rounded_to_labels(whole_numbers):
    return lambda file, labels: labels.astype("int64")


@breaks(
    "cellrepro.images.folder_files:Survey.digest",
    "Two folders with the same images under other names have different digests.",
    tests=["tests/images/test_folder.py::test_digest_notices_names"],
)
def a_digest_forgets_names(digest):
    import hashlib

    return lambda survey: hashlib.sha256(
        "".join(sorted(survey.files.values())).encode()
    ).hexdigest()


@breaks(
    "cellrepro.images.folder:_leaks",
    "A test image that was trained on is named.",
    tests=["tests/images/test_folder.py::test_what_is_not_used_and_what_leaks_is_named"],
)
def no_leak_is_named(leaks):
    return lambda *_: iter(())


@breaks(
    "cellrepro.images.public_sets:_verify",
    "An image that has changed since its download is found at the next use.",
    tests=["tests/images/test_public_sets.py::test_tampering_is_found"],
)
def a_download_is_not_checked_again(verify):
    return lambda *_: None


@breaks(
    "cellrepro.images.integer_images:NOISE_SPREAD",
    "A synthetic image has the same bytes everywhere.",
    tests=["tests/images/test_nuclei.py::test_the_default_set_is_pinned"],
)
def synthetic_noise_is_weaker(noise_spread):
    return noise_spread + 1


@breaks(
    "cellrepro.images.pixel_size:_checked",
    "A size of pixels that differs between rows and columns makes no scale bar.",
    tests=["tests/images/test_pixel_size.py::test_of_a_tiff"],
)
def a_pixel_is_as_wide_as_it_is_high(checked):
    return lambda _y, x, unit: checked(x, x, unit)
