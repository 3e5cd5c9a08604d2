"""Any program or function that segments is a run like any other, or is refused whole."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from scipy import ndimage

import cellrepro
from cellrepro.comparison.scores import average_precision
from cellrepro.images.folder import read_folder
from cellrepro.images.image_axes import Axes
from cellrepro.process.process_ends import RunError
from cellrepro.process.process_trees import _end_by_parents, end_tree
from cellrepro.run.function_segmenter import load_function, plan_function
from cellrepro.run.options import WrapOptions
from cellrepro.run.program_segmenter import LOGS, plan_program
from cellrepro.store.store import Store
from conftest import MAIN, options
from samebits.errors import BadInput
from samebits.generator_states import generators_kept

PYTHON = sys.executable

WATERSHED = """\
import os, sys
import numpy as np, tifffile
from scipy import ndimage
from skimage.filters import threshold_otsu
from skimage.io import imsave
from skimage.segmentation import watershed

def segment(image):
    cells = image > threshold_otsu(image)
    depth = ndimage.gaussian_filter(ndimage.distance_transform_edt(cells), 2)
    seeds, _ = ndimage.label((depth == ndimage.maximum_filter(depth, 15)) & cells)
    return watershed(-depth, seeds, mask=cells)

def noisy(image):
    return segment(image + np.random.normal(0, 0.2 * image.std(), image.shape))

if __name__ == "__main__":
    print(*(os.environ.get(n) for n in ("CELLREPRO_SEED", "PYTHONHASHSEED", "OMP_NUM_THREADS")))
    print(os.listdir())
    masks = segment(tifffile.imread(sys.argv[1])).astype("uint16")
    imsave(sys.argv[2], masks, check_contrast=False)
"""

CELLPOSE = """\
import functools, os, sys
from cellpose import __main__, models
from cellrepro.model.encoders import ENCODERS
from cellrepro.model.network import encoder_in_place

weights, image, masks = sys.argv[1:]
sys.argv[1:] = ["--image_path", image, "--save_tif", "--savedir", "."]
sys.argv += ["--pretrained_model", weights]
with encoder_in_place(ENCODERS["tiny"]):
    models.CPSAM = functools.partial(models.CPSAM, ps=ENCODERS["tiny"].patch)
    __main__.main()
os.rename("image_cp_masks.tif", masks)
"""

NETWORK = """\
from pathlib import Path
import numpy as np, torch
from scipy import ndimage

def network():
    layers = [torch.nn.Conv2d(a, b, 5, padding="same") for a, b in ((1, 8), (8, 8), (8, 1))]
    return torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2])

def pixels(image):
    return torch.from_numpy((image - image.mean()) / image.std()).float()[None, None]

def segment(image):
    trained = network()
    trained.load_state_dict(torch.load(Path(__file__).with_name("weights.pt")))
    with torch.no_grad():
        seeds = ndimage.label(trained(pixels(image))[0, 0].numpy() > 0)[0]
    return ndimage.grey_dilation(seeds, 5)
"""

STACKS = """\
import sys

def segment(image):
    return (image > 9).astype("uint16")

if __name__ == "__main__":
    import tifffile
    tifffile.imwrite(sys.argv[2], segment(tifffile.imread(sys.argv[1])), photometric="minisblack")
"""

ODD = """\
import subprocess, sys, time
import numpy as np, tifffile
from pathlib import Path

what, image, masks = sys.argv[1:]
read = tifffile.imread(image)
cells = (read > read.mean() + read.std()).astype("uint8")
pictures = {
    "grey": read, "foreground": cells, "colours": np.stack([read] * 3, -1).astype("uint8"),
    "probability": (cells * 0.7).astype("float32"), "half": cells[::2, ::2],
    "spots": np.zeros(read.shape, "uint16"), "none": 0 * cells,
}
pictures["spots"][::7, ::7] = 1 + np.arange(read[::7, ::7].size).reshape(read[::7, ::7].shape)
print("as asked:", what, flush=True)
if what == "fails":
    sys.exit(7)
if what == "hangs":
    child = subprocess.Popen(["sleep", "100"])
    (Path(__file__).parent / "pids").write_text(str(child.pid))
    time.sleep(100)
if what in pictures:
    tifffile.imwrite(masks, pictures[what])
"""


@pytest.fixture
def written(tmp_path):
    """Writes a script and returns its path."""

    def write(text, name="script.py"):
        path = tmp_path / "scripts" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


@pytest.fixture
def paths_kept(monkeypatch):
    """A function is imported here, and not in a process of its own."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in ("script", "own_network"):
        sys.modules.pop(name, None)


def masks_of(plan, folder):
    """What the wrapped segmenter makes of the test image, in this process."""
    (image,) = read_folder(plan.request.data).test
    (found,) = plan.request.results(None, [image], folder)
    return found.masks


def is_gone(pid):
    """Within two seconds; nobody may be there to collect what has ended."""
    for _ in range(40):
        state = Path(f"/proc/{pid}/stat")
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


# -- real ones -------------------------------------------------------------------------------


def test_a_watershed_as_program_and_as_function(
    written, small_data, tmp_path, invoke, wholeness, paths_kept
):
    """The store holds what the script makes by itself; it is compared and listed as any run."""
    pytest.importorskip("skimage")
    script, store = written(WATERSHED), tmp_path / "outputs"
    (image,) = read_folder(small_data).test
    asked = ("--json", *options(repeats=2, store=store, seed=5))
    command = (PYTHON, script, "{image}", "{masks.png}")
    program = invoke("wrap", small_data, *asked, "--", *command)
    assert program.code == 0, program.err
    assert program.json["verdict"] == "identical"
    found = Store(store).find(program.json["key"])
    expected = load_function(f"{script}:segment")(image.image)
    np.testing.assert_array_equal(found.masks(image.name), expected)
    assert found.manifest.ap50 == average_precision(image.masks, expected)[0] > 0.5
    seen, files = (found.folder / LOGS / f"{image.name}.txt").read_text().splitlines()
    assert seen == f"5 5 {found.manifest.variables['OMP_NUM_THREADS']}"
    assert files == f"['image{image.image_path.suffix}']"
    assert len(wholeness(store)) == 2
    function = invoke(
        "wrap-python", f"{script}:segment", small_data, *asked[:1], *asked[2:], "--repeats=1"
    )
    assert function.code == 0
    same = invoke("compare", program.json["key"], function.json["key"], *asked[2:3], "--json").json
    assert same["verdict"] == "identical"
    listed = invoke("list", *asked[2:3])
    assert "wrap nuclei with python script.py, seed 5, profile cpu, mode fast" in listed.out


@pytest.mark.slow
def test_cellposes_command_line(written, small_store, tmp_path):
    """Through a launcher that puts the small encoder in; masks are those of the lab's own run."""
    from safetensors.torch import load_file

    weights, store = tmp_path / "tiny.pth", tmp_path / "outputs"
    torch.save(load_file(small_store.weights), weights)
    command = [PYTHON, written(CELLPOSE), weights, "{image}", "{masks}"]
    wrapped = cellrepro.wrap(small_store.data, command, store=store, repeats=2, quiet=True)
    assert wrapped.judgement.overall == "identical"
    asked = {"model": str(small_store.weights), "profile": "cpu-bfloat16", "repeats": 1}
    own = cellrepro.segment(small_store.data, **asked, mode="fast", store=store, quiet=True)
    (a,), (b,) = (run.repeats[0].manifest.masks.values() for run in (wrapped, own))
    assert a.n_objects > 5
    assert (a.digest, a.canonical_digest) == (b.digest, b.canonical_digest)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "generators_free")
def test_another_network(written, small_data, tmp_path, paths_kept):
    """Trained here, in mode strict; another training of it is another run."""
    script, folder = written(NETWORK, "own_network.py"), read_folder(small_data)
    module = sys.modules[load_function(f"{script}:segment").__module__]
    torch.manual_seed(0)
    network = module.network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for step in range(120):
        image = folder.train[step % len(folder.train)]
        inner = ndimage.grey_erosion(image.masks, 5) == ndimage.grey_dilation(image.masks, 5)
        truth = torch.from_numpy(inner & (image.masks > 0)).float()[None, None]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            network(module.pixels(image.image)), truth
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(network.state_dict(), script.with_name("weights.pt"))
    found = cellrepro.wrap_python(
        f"{script}:segment", small_data, store=tmp_path / "outputs", repeats=2, quiet=True
    )
    assert found.judgement.overall == "identical"
    assert found.repeats[0].manifest.ap50 > 0.1
    assert found.plan.spec.mode == "strict"


# -- what is refused -------------------------------------------------------------------------

REFUSED = {
    "fails": "odd.py fails on .* exit code 7; its last words:\nas asked: fails",
    "nothing": "wrote nothing where {masks} stood",
    "grey": "is no label image: .* a picture, no label image",
    "foreground": "a picture or a foreground map, no label image: 1 of its values",
    "colours": "is no label image: .*expected label numbers",
    "probability": "is a fraction",
    "half": r"shape \(\d+, \d+\); expected \(Y, X\)",
}


@pytest.mark.parametrize(("what", "why"), REFUSED.items(), ids=REFUSED)
def test_what_is_no_label_image_is_refused(what, why, written, small_data, tmp_path):
    command = [PYTHON, written(ODD, "odd.py"), what, "{image}", "{masks}"]
    with pytest.raises(BadInput, match=why):
        masks_of(plan_program(WrapOptions(data=small_data, mode="fast"), command), tmp_path)


@pytest.mark.parametrize("what", ["spots", "none"])
def test_labels_of_one_pixel_and_no_labels_are_labels(what, written, small_data, tmp_path):
    command = [PYTHON, written(ODD, "odd.py"), what, "{image}", "{masks}"]
    masks = masks_of(plan_program(WrapOptions(data=small_data, mode="fast"), command), tmp_path)
    assert np.count_nonzero(masks) == len(np.unique(masks)) - 1 == (masks.max(initial=0))


@pytest.mark.parametrize(
    ("what", "given", "code"), [("fails", (), 2), ("hangs", ("--timeout=1",), 3)]
)
def test_one_message_an_exit_code_and_nothing_in_the_store(
    what, given, code, written, small_data, tmp_path, invoke
):
    script = written(ODD, "odd.py")
    command = (PYTHON, script, what, "{image}", "{masks}")
    asked = (*given, *options(repeats=2, store=tmp_path / "outputs"))
    answer = invoke("wrap", small_data, *asked, "--", *command)
    assert (answer.code, answer.out) == (code, "")
    assert answer.err.count("cellrepro: ") == 1
    assert not Store(tmp_path / "outputs").runs()
    assert not list(tmp_path.glob("outputs/runs/*"))
    if what == "hangs":
        assert "took more than 1 seconds" in answer.err
        assert is_gone(int(script.with_name("pids").read_text()))


@pytest.mark.slow
def test_kill_9_leaves_no_run_and_no_program(written, small_data, tmp_path):
    script, store = written(ODD, "odd.py"), tmp_path / "outputs"
    command = (PYTHON, script, "hangs", "{image}", "{masks}")
    words = ("wrap", small_data, f"--store={store}", "--", *command)
    pids = script.with_name("pids")
    with subprocess.Popen(
        [PYTHON, "-P", "-c", MAIN, *map(str, words)], stderr=subprocess.DEVNULL
    ) as process:
        try:
            for _ in range(1200):
                if pids.exists() and pids.read_text():
                    break
                time.sleep(0.1)
        finally:
            os.kill(process.pid, signal.SIGKILL)
    assert is_gone(int(pids.read_text()))
    assert not list(store.glob("runs/*"))


PROGRAMS = {
    "no image": (["python", "{masks}"], {}, "expected {image} in it"),
    "no masks": (["python", "{image}"], {}, "one of {masks}"),
    "masks twice": (["python", "{image}", "{masks}", "{masks.png}"], {}, "one of {masks}"),
    "no program": (["no-such-program", "{image}", "{masks}"], {}, "no program 'no-such-program'"),
    "no data": ([PYTHON, "{image}", "{masks}"], {"data": "no-such-folder"}, "no-such-folder"),
    "mode": ([PYTHON, "{image}", "{masks}"], {"mode": "strict"}, "expected 'off' or 'fast'"),
    "seed off": ([PYTHON, "{image}", "{masks}"], {"mode": "off", "seed": 1}, "seeds nothing"),
    "no time": ([PYTHON, "{image}", "{masks}"], {"timeout": float("nan")}, "more than 0"),
}


@pytest.mark.parametrize(("command", "given", "why"), PROGRAMS.values(), ids=PROGRAMS)
def test_wrong_commands_start_nothing(command, given, why, small_data, no_child):
    options = dict(given)
    data = options.pop("data", small_data)
    with pytest.raises(BadInput, match=why):
        cellrepro.wrap(data, command, **options)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no_such_module:f", "names no function"),
        ("no_such.py:f", "names no function"),
        ("script.py", "names no function"),
        ("{script}:absent", "has no function 'absent'"),
        ("{script}:fails", r"failed with ValueError\('not these'\), in .*script.py:4"),
        ("{script}:returns_two", r"gave masks of shape \(2, 256, 256\); expected \(Y, X\)"),
        ("{script}:short", "is for the disk|memory is short"),
    ],
)
def test_functions_that_cannot_be_used(name, why, written, small_data, tmp_path, paths_kept):
    script = written(
        "import numpy as np\n\n"
        "def fails(image):\n    raise ValueError('not these')\n\n"
        "def returns_two(image):\n    return np.array([image, image], float)\n\n"
        "def short(image):\n    raise MemoryError\n"
    )
    kind = RunError if "short" in name else BadInput
    with pytest.raises(kind, match=why):
        masks_of(
            plan_function(WrapOptions(data=small_data, mode="off"), name.format(script=script)),
            tmp_path,
        )


RETURNS = """\
import sys
import numpy as np

def masks_of(image):
    masks = np.zeros(image.shape, int)
    masks[2:9, 3:7] = 2
    return masks

def whole(image):
    return masks_of(image).astype("float32")

def batch(image):
    return masks_of(image)[None]

def channel(image):
    return masks_of(image)[..., None].astype("float64")

def several(image):
    return masks_of(image), [image], np.zeros(256)

def by_name(image):
    return {"masks": masks_of(image)}

def nothing(image):
    masks_of(image)

def ends(image):
    sys.exit(3)

def fractions(image):
    return masks_of(image) + 0.5

def not_numbers(image):
    return masks_of(image) * np.nan

def two_images(image):
    return np.stack([masks_of(image)] * 2)
"""


@pytest.mark.parametrize("name", ["masks_of", "whole", "batch", "channel"])
def test_masks_are_taken_in_the_forms_that_networks_give(
    name, written, small_data, tmp_path, paths_kept
):
    plan = plan_function(WrapOptions(data=small_data), f"{written(RETURNS)}:{name}")
    with generators_kept():
        masks = masks_of(plan, tmp_path)
    assert masks.dtype.kind in "iu"
    assert np.argwhere(masks == 2)[[0, -1]].tolist() == [[2, 3], [8, 6]]
    assert np.count_nonzero(masks) == 28


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("several", "returned tuple of 3; return the label image alone"),
        ("by_name", "returned dict of 1; return the label image alone"),
        ("nothing", "returned NoneType; return the label image alone"),
        ("ends", "ended itself with code 3"),
        ("fractions", "holds integers"),
        ("not_numbers", "holds integers"),
        ("two_images", r"gave masks of shape \(2, "),
    ],
)
def test_what_is_no_label_image_of_a_function_is_refused(
    name, why, written, small_data, tmp_path, paths_kept
):
    plan = plan_function(WrapOptions(data=small_data), f"{written(RETURNS)}:{name}")
    with generators_kept(), pytest.raises(BadInput, match=why):
        masks_of(plan, tmp_path)


SETS = """\
import numpy as np

def segment(image):
    masks = np.zeros(image.shape, int)
    masks.flat[:64] = [int(text) for text in {str(number) for number in range(1, 65)}]
    return masks
"""


@pytest.mark.slow
def test_an_order_of_sets_that_changes_is_seen_in_mode_off(
    written, small_data, tmp_path, invoke, monkeypatch
):
    """By chance alone two orders of 64 texts are never the same; other modes fix it, and say so."""
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    words = ("wrap-python", f"{written(SETS)}:segment", small_data)
    found = {}
    for mode in ("off", "fast"):
        asked = options(mode=mode, repeats=2, store=tmp_path / mode)
        found[mode] = invoke(*words, *asked, "--json").json
    assert found["off"]["verdict"] != "identical"
    assert found["fast"]["verdict"] == "identical"
    said = {mode: "order of sets" in " ".join(found[mode]["notices"]) for mode in found}
    assert said == {"off": False, "fast": True}


@pytest.mark.parametrize("given", [{"settings": {"diameter": 30}}, {"ledger": "ops"}])
def test_what_would_reach_no_foreign_segmenter_is_no_parameter(given, written, small_data):
    with pytest.raises(BadInput, match="there is no such field"):
        plan_function(WrapOptions(data=small_data, **given), f"{written('')}:f")


def test_a_stack_is_wrapped(written, tmp_path, paths_kept):
    """With masks of all its planes, by a program and by a function."""
    stack = np.zeros((3, 24, 20), np.uint16)
    stack[:, 4:9, 4:12] = 200
    data = tmp_path / "stacks"
    data.mkdir()
    tifffile.imwrite(data / "z.tif", stack, metadata={"axes": "ZYX"}, photometric="minisblack")
    script = written(STACKS)
    command = [PYTHON, script, "{image}", "{masks}"]
    for plan in (
        plan_program(WrapOptions(data=data, mode="fast"), command),
        plan_function(WrapOptions(data=data), f"{script}:segment"),
    ):
        (image,) = read_folder(data, to_train=False, axes=Axes(stacks=True)).train
        with generators_kept():
            (found,) = plan.request.results(None, [image], tmp_path)
        np.testing.assert_array_equal(found.masks, stack > 0)
    (tmp_path / "scripts" / "script.py").write_text(STACKS.replace("image > 9", "image[0] > 9"))
    plan = plan_program(WrapOptions(data=data, mode="fast"), command)
    with pytest.raises(BadInput, match=r"shape \(24, 20\); expected \(Z, Y, X\) = \(3, 24, 20\)"):
        next(plan.request.results(None, [image], tmp_path))


@pytest.mark.parametrize("end", [end_tree, _end_by_parents], ids=["group", "as on Windows"])
def test_a_program_ends_with_all_that_it_started(end, tmp_path):
    pids = tmp_path / "pids"
    child = "import time; time.sleep(100)"
    parent = (
        "import subprocess, sys, time, pathlib\n"
        f"child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        f"pathlib.Path({str(pids)!r}).write_text(str(child.pid) + ' ')\n"
        "time.sleep(100)"
    )
    process = subprocess.Popen([PYTHON, "-c", parent], start_new_session=True)
    while not pids.exists() or not pids.read_text().endswith(" "):
        time.sleep(0.05)
    end(process.pid)
    process.wait()
    assert is_gone(int(pids.read_text()))
    end(process.pid)  # of one that has ended nothing is left to do


# -- what names a run ------------------------------------------------------------------------


def test_words_and_the_files_they_name_are_the_key(written, small_data):
    """Not where the run is stored or how long it may take."""
    script = written("1")

    def key(*words, timeout=None, **given):
        command = [PYTHON, script, *words, "{image}", "{masks}"]
        options = WrapOptions(data=small_data, **{"mode": "fast", **given})
        return plan_program(options, command, timeout=timeout).spec.key

    usual = key("--sigma=1")
    assert key("--sigma=1", timeout=5, store="elsewhere") == usual
    assert len({usual, key("--sigma=2"), key("--sigma=1", seed=1), key()}) == 4
    with_file = key(f"--script={script}")
    written("2")
    assert key("--sigma=1") != usual
    assert key(f"--script={script}") != with_file


def test_what_a_function_or_script_imports_from_beside_it_is_in_the_key(written, small_data):
    """Also what that imports in its turn, and in a package; what is installed is not looked at."""
    script = written("import numpy\nfrom helper import smooth\ndef segment(image): ...\n")
    written("import deeper\n", "helper.py")
    written("x = 1\n", "deeper.py")
    written("nobody imports it\n", "other.py")
    package = script.parent / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("y = 1\n")
    (package / "function.py").write_text("from .part import y\ndef segment(image): ...\n")

    def keys():
        command = [PYTHON, script, "{image}", "{masks}"]
        functions = (f"{script}:segment", f"{package / 'function.py'}:segment")
        plans = [plan_function(WrapOptions(data=small_data), function) for function in functions]
        return [
            plan.spec.key
            for plan in (*plans, plan_program(WrapOptions(data=small_data, mode="fast"), command))
        ]

    before = keys()
    written("something else\n", "other.py")
    assert keys() == before
    written("x = 2\n", "deeper.py")
    assert [a == b for a, b in zip(keys(), before, strict=True)] == [False, True, False]
    (package / "part.py").write_text("y = 2\n")
    assert not {*keys()} & {*before}


def test_modules_are_looked_for_where_they_were_once_a_function_has_ended(written):
    """Also where the function imports from beside its file only when it is called."""
    written("background = 0\n", "late_helper.py")
    script = written(
        "def segment(image):\n    import late_helper\n    return image * late_helper.background\n",
        "late.py",
    )
    before = list(sys.path)
    masks = load_function(f"{script}:segment")(np.ones((2, 2), int))
    np.testing.assert_array_equal(masks, np.zeros((2, 2), int))
    assert sys.path == before


def test_repeats_that_were_stored_before_are_said_to_be(written, small_data, tmp_path, capfd):
    script = written(ODD, "odd.py")
    command = [PYTHON, script, "spots", "{image}", "{masks}"]
    given = {"store": tmp_path / "outputs", "repeats": 1}
    cellrepro.wrap(small_data, command, **given)
    assert "stored already" not in capfd.readouterr().err
    found = cellrepro.wrap(small_data, command, **given)
    told = capfd.readouterr().err
    assert "note: stored already and not run again: 1 of 1 repeat, the last made on 2" in told
    assert f"remove {found.folder}" in told


def test_words_that_name_files_lead_there_from_anywhere(written, small_data, monkeypatch):
    script = written("")
    monkeypatch.chdir(script.parent)
    long = f"{'x' * 300} script.py"
    plan = plan_program(
        WrapOptions(data=small_data, mode="fast"),
        ["python3", "script.py", "--a=./script.py", "--b=c", long, "{image}{masks}"],
    )
    program, *words = plan.request.words
    assert Path(program).is_absolute()
    expected = [str(script), f"--a={script}", "--b=c", long, "{image}{masks}"]
    assert words == expected
    assert plan.spec.program[1] == "script.py"
    line = "python3 script.py '--b=a b' {image} {masks}"
    assert plan_program(WrapOptions(data=small_data, mode="fast"), line).spec.program == tuple(
        shlex.split(line)
    )
    assert len(plan.spec.model) < 70


@pytest.mark.usefixtures("generators_free")
def test_a_seed_reaches_the_function_and_off_does_not_seed(
    written, small_data, tmp_path, paths_kept
):
    script = written(
        "import numpy as np\nnp.random.rand()\n\n"
        "def f(image):\n    masks = np.zeros(image.shape, int)\n"
        "    masks[:3] = np.random.randint(1, 1000, image.shape[1])\n    return masks\n"
    )
    found = []
    for n, given in enumerate([{"seed": 1}, {"seed": 1}, {"seed": 2}, {"mode": "off"}]):
        plan = plan_function(
            WrapOptions(data=small_data, **{"mode": "fast", **given}), f"{script}:f"
        )
        (tmp_path / str(n)).mkdir()
        found.append(masks_of(plan, tmp_path / str(n)).tobytes())
    assert found[0] == found[1]
    assert len({*found}) == 3


FLIPS = """\
import numpy as np
import torch

def segment(image):
    cells = torch.from_numpy(image.astype("float32")) > float(image.mean())
    noise = torch.empty_like(cells, dtype=torch.float32) if UNWRITTEN else torch.zeros(cells.shape)
    return ((cells.float() + 0 * noise.nan_to_num()) > 0.5).int().numpy() * 2
"""


@pytest.mark.slow
def test_audit_takes_a_function(small_data, tmp_path, invoke):
    """Memory that nobody wrote is read in one, in the other not; one has nothing to replay."""
    (tmp_path / "watershed.py").write_text(WATERSHED)
    found = {}
    for name, value in (("clean", "False"), ("unwritten", "True")):
        (tmp_path / f"{name}.py").write_text(FLIPS.replace("UNWRITTEN", value))
    for name in ("clean", "unwritten", "watershed"):
        asked = options(function=f"{tmp_path / name}.py:segment", steps=1, replays=2)
        answer = invoke("audit", small_data, *asked, "--json")
        found[name] = (answer.code, answer.json["n_replays"] > 0, bool(answer.json["ops"]))
    assert found["clean"] == (0, True, False)
    assert found["watershed"] == (1, False, False)
    assert found["unwritten"] == (1, True, True)
    bad = invoke("audit", small_data, *options(function="nowhere.py:segment"))
    assert (bad.code, bad.out, "names no function" in bad.err) == (2, "", True)
