"""What `pip install cellrepro` alone can do, without PyTorch, Cellpose, Jupyter and pandas."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tifffile

PROJECT = Path(__file__).parents[1]
LAB = (
    "torch",
    "torchvision",
    "cellpose",
    "segment_anything",
    "pandas",
    "pyarrow",
    "imagecodecs",
    "zarr",
    "anywidget",
    "ipywidgets",
    "matplotlib",
    "mpl_toolkits",
    "IPython",
    "nbformat",
    "papermill",
    "pooch",
    "cv2",
    "skimage",
)
HIDE = f"""
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {LAB!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Hidden())

import importlib.util

_find_spec = importlib.util.find_spec

def find_spec(name, package=None):
    return None if name.partition(".")[0] in {LAB!r} else _find_spec(name, package)

importlib.util.find_spec = find_spec
"""
SEGMENTER = """
import sys
import numpy as np
import tifffile
from scipy import ndimage

image = tifffile.imread(sys.argv[1])
tifffile.imwrite(sys.argv[2], ndimage.label(image > 150)[0].astype(np.uint16))
"""


HELP = """
import contextlib
import io
from pathlib import Path
from cellrepro import lab_elsewhere
from cellrepro.cli import run
from cellrepro.commands import BY_NAME
from samebits.errors import NotPossibleHere
from cellrepro.process import lab

for name in BY_NAME:
    with contextlib.redirect_stdout(io.StringIO()):
        code = run([name, "--help"])
    assert code in (0, NotPossibleHere.exit_code), name
    print(name, "is shown" if code == 0 else "needs the lab")
handed = []
lab.known_lab = lambda: lab.Lab(Path("lab"), "0")
lab_elsewhere.handed_to = lambda lab, words: handed.append(words)
for name in BY_NAME:
    with contextlib.redirect_stdout(io.StringIO()):
        run([name, "--help"])
print(*(" ".join(words) for words in handed), sep=", ")
"""


def masks_of_squares(n_pixels=8):
    masks = np.zeros((64, 64), np.uint16)
    for label, corner in enumerate([(4, 4), (4, 40), (40, 4), (40, 40)], start=1):
        masks[corner[0] : corner[0] + n_pixels, corner[1] : corner[1] + n_pixels] = label
    return masks


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """A folder with files, and a function that runs the command line without the lab."""
    folder = tmp_path_factory.mktemp("core")
    hidden = folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(HIDE)
    masks = masks_of_squares()
    tifffile.imwrite(folder / "a.tif", masks, compression="zlib")
    tifffile.imwrite(folder / "b.tif", np.where(masks == 3, 0, masks))
    tifffile.imwrite(folder / "image.tif", 100 + 100 * (masks > 0).astype(np.uint16))
    for name, image in (("A", masks), ("B", np.where(masks == 3, 0, masks))):
        (folder / name).mkdir()
        tifffile.imwrite(folder / name / "one_masks.tif", image)
    (folder / "data").mkdir()
    tifffile.imwrite(folder / "data" / "one.tif", 100 + 100 * (masks > 0).astype(np.uint16))
    (folder / "segment.py").write_text(SEGMENTER)
    search_path = os.pathsep.join([str(hidden), str(PROJECT / "src")])

    def run(*words):
        begun = [] if words[0] == "-c" else ["-m", "cellrepro"]
        return subprocess.run(
            [sys.executable, *begun, *map(str, words)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": search_path},
            capture_output=True,
            text=True,
        )

    return run


def test_the_lab_is_hidden_from_these_tests(core):
    done = core("train", "data")
    assert done.returncode not in (0, 1)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["compare", "a.tif", "b.tif"], 1, "1 lost"),
        (["compare", "A", "B"], 1, "1 lost"),
        (["compare", "a.tif", "b.tif", "--image", "image.tif", "--html", "p.html"], 1, "page: p"),
        (["explore", "image.tif", "a.tif", "b.tif", "--html", "e.html"], 0, "3 kept, 1 lost; 64"),
        (["describe", "a.tif"], 0, "4 cells in 64 × 64 pixels"),
        (["describe", "a.tif", "--command"], 0, "no command: nothing is recorded"),
        (["explain", "a.tif", "b.tif"], 1, "3 kept, 1 lost"),
        (["tiles", "--masks", "a.tif"], 0, "no row or column"),
        (["baseline", "save", "A", "base.json"], 0, "4 cells"),
        (["baseline", "check", "base.json", "B"], 1, "broken"),
        (
            ["wrap", "data", "--", sys.executable, "segment.py", "{image}", "{masks}"],
            0,
            "identical",
        ),
        (["list"], 0, "wrap data"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_what_reads_files_needs_no_lab(core, words, code, said):
    done = core(*words)
    assert (done.returncode, done.stderr if done.returncode not in (0, 1) else "") == (code, "")
    assert said in done.stdout


def test_every_command_helps_or_says_what_it_lacks(core):
    """With a lab elsewhere, that one is given the whole command line."""
    helped = core("-c", HELP)
    assert helped.returncode == 0, helped.stderr
    *commands, handed = helped.stdout.splitlines()
    assert len(commands) > 25
    lacking = [line.split()[0] for line in commands if line.endswith("needs the lab")]
    assert handed == ", ".join(f"{name} --help" for name in lacking)
    assert lacking, "or nothing was handed over"


def test_the_package_asks_pip_for_nothing_of_the_lab():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    required = {word.partition(">")[0] for word in project["dependencies"]}
    assert not required & {name.replace("_", "-") for name in LAB}
    assert {"lab", "notebook", "formats", "cluster", "dev"} <= project[
        "optional-dependencies"
    ].keys()
