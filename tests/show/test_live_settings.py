"""Sliders of settings: what is asked for, what is shown, what is dropped."""

import json
import queue
import re
import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile
from scipy import ndimage

import cellrepro
from cellrepro.errors import CellreproError
from cellrepro.explanation.commands import Commands, ShellLine
from cellrepro.explanation.live_segmentation import (
    Inbox,
    LiveAnswer,
    LiveRequest,
    answer_requests,
)
from cellrepro.images.folder import read_folder
from cellrepro.model.no_cell import NoCell
from cellrepro.show.explorer.live_start import NAMES, Answers, LiveImage, start_live
from cellrepro.show.explorer.live_view import LiveView, settings_at, values_of
from cellrepro.show.explorer.live_widget import LiveExplorer
from cellrepro.show.explorer.no_cell import why_none
from cellrepro.show.explorer.scenes import Scenes
from cellrepro.show.explorer.view import View
from cellrepro.show.local_server import LocalServer
from cellrepro.show.pages.live_page import LivePage
from cellrepro.spec.segmentation_settings import Settings
from conftest import write_notebook
from lab_server import browsing, jupyterlab
from samebits.errors import BadInput

ROOT = Path(__file__).resolve().parents[2]
SIZE = 96


def heights() -> np.ndarray:
    """Nine hills of which each is higher than the last, from -5.5 to 2.5."""
    y, x = np.mgrid[:SIZE, :SIZE]
    hills = np.full((SIZE, SIZE), -10.0)
    for number in range(9):
        row, column = 16 + 32 * (number // 3), 16 + 32 * (number % 3)
        hills[np.hypot(y - row, x - column) < 10] = number - 5.5
    return hills


def cells(settings: Settings) -> np.ndarray:
    labels, n_cells = ndimage.label(heights() > settings.cellprob_threshold)
    sizes = ndimage.sum_labels(labels > 0, labels, np.arange(n_cells + 1))
    labels[sizes[labels] < settings.min_size] = 0
    return labels.astype(np.uint16)


WHY = why_none(SimpleNamespace(label="tiny", untrained=False))


class Segmenter:
    """Answers in this very process, when it is told to."""

    def __init__(self, answers: Answers, *, at_once: bool) -> None:
        self.answers, self.at_once = answers, at_once
        self.asked: list[LiveRequest] = []
        self.is_closed = False

    def ask(self, request: LiveRequest) -> None:
        self.asked.append(request)
        if self.at_once:
            threading.Thread(target=self.answer, args=(request,)).start()

    def answer(self, request: LiveRequest, problem: str = "") -> None:
        masks = None if problem else cells(request.settings)
        no_cell = NoCell(2.5, 3, 3, 3, (("min_size", 3),))
        self.answers(
            LiveAnswer(
                request.number, request.kind, request.settings, masks, 0.1, 3.0, problem, no_cell
            )
        )

    def close(self) -> None:
        self.is_closed = True


def exact(number: int, settings: Settings, *, pass_seconds: float = 3.0) -> LiveAnswer:
    return LiveAnswer(number, "exact", settings, cells(settings), 1.0, pass_seconds)


def live_image(*, at_once: bool = False, moved: Settings | None = None) -> LiveImage:
    answers = Answers()
    first = exact(0, Settings())
    now = exact(1, moved) if moved else first
    pixels = (heights() * 10 + 100).astype(np.uint8)
    view = View("hills", [first.masks, now.masks], pixels)
    segmenter = Segmenter(answers, at_once=at_once)

    def commands(settings: Settings) -> Commands:
        words = " ".join(f"--set {n}={v}" for n, v in settings.not_default().items())
        return Commands(lab=ShellLine(f"cellrepro segment hills.tif {words}"))

    return LiveImage(view, first, now, segmenter, answers, commands, WHY)  # type: ignore[arg-type]


@contextmanager
def viewing(image: LiveImage):
    """A view whose answers are given by hand, and all that it showed."""
    shown = []
    view = LiveView(
        Scenes([image.view], NAMES),
        image.first,
        image.now,
        image.segmentation,
        commands=image.commands,
        show=shown.append,
        why_none=image.why_none,
        still_seconds=0.01,
    )
    image.answers.follow = view.answer
    yield SimpleNamespace(view=view, asked=image.segmentation.asked, shown=shown, by=image)
    view.close()
    assert image.segmentation.is_closed


@pytest.fixture
def live():
    with viewing(live_image()) as live:
        yield live


def until(condition) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_slider_may_have_been_moved_before_it_begins():
    moved = Settings().replaced(cellprob_threshold=1.0)
    with viewing(live_image(moved=moved)) as live:
        assert live.view.live["values"] == values_of(moved)
        assert live.view.live["reference"] == values_of(Settings())
        live.view.receive({"do": "back"})
        assert live.view.live["values"] == values_of(Settings())
        assert not live.asked  # the masks of the reference are at hand


def test_a_preview_while_one_drags_and_exact_masks_when_it_stands_still(live):
    live.view.receive({"set": {"cellprob_threshold": 1.0}})
    until(lambda: len(live.asked) == 2)
    preview, exact = live.asked
    assert (preview.kind, exact.kind) == ("preview", "exact")
    live.by.segmentation.answer(preview)
    scene, said = live.shown[-1].scene, live.shown[-1].live
    assert (said["state"], said["line"]) == ("preview", "2 cells: preview")
    assert (scene["n_objects"], scene["kinds"]["lost"]) == ({"a": 3, "b": 2}, 1)
    assert set(live.shown[-1].planes) == {
        scene["planes"][key] for key in ("a", "b", "categories", "story")
    }
    live.by.segmentation.answer(exact)
    assert live.shown[-1].live["line"] == "2 cells: exact, the masks of Cellpose itself"
    assert live.shown[-1].live["commands"] == [
        "cellrepro segment hills.tif --set cellprob_threshold=1.0"
    ]


def test_what_comes_too_late_is_dropped(live):
    live.view.receive({"set": {"cellprob_threshold": 1.0}})
    until(lambda: len(live.asked) == 2)
    live.view.receive({"set": {"cellprob_threshold": -1.0}})
    until(lambda: len(live.asked) == 4)
    first, first_exact, second, _ = live.asked
    live.by.segmentation.answer(second)
    n_shown = len(live.shown)
    live.by.segmentation.answer(first)  # an earlier preview
    live.by.segmentation.answer(first_exact)  # exact, but for where the sliders no longer stand
    assert len(live.shown) == n_shown
    assert live.asked[4].settings.cellprob_threshold == -1, "the kept output may be another one"


def test_what_needs_the_network_says_so_and_about_how_long(live):
    live.view.receive({"set": {"diameter": 15, "percentile_low": 2.0}})
    said = live.shown[-1].live
    assert (said["state"], live.asked) == ("needs-pass", [])
    assert said["line"] == (
        "shown: diameter not set (as if 30), percentile not set (as if 1 to 99); "
        "not yet computed: diameter 15, percentile 2 to 99; "
        "the network has to run again, about 12 seconds"
    )
    (command,) = said["commands"]
    assert "--set diameter=15.0 " in command, "those of the sliders, not of the masks shown"
    live.view.receive({"do": "run"})
    (request,) = live.asked
    assert request.settings.not_default() == {
        "diameter": 15.0,
        "normalize.percentile": (2.0, 99.0),
    }
    live.by.segmentation.answer(request)
    assert live.shown[-1].live["state"] == "exact"
    live.view.receive({"do": "back"})  # to masks at hand, while the network runs for them again
    said, scene = live.shown[-1].live, live.shown[-1].scene
    assert (said["state"], said["values"]["diameter"]) == ("exact", 30)
    assert scene["planes"]["a"] == scene["planes"]["b"]
    _, request = live.asked
    assert (request.kind, request.settings.not_default()) == ("exact", {})
    live.by.segmentation.answer(request)
    live.view.receive({"set": {**said["values"], "cellprob_threshold": 1}})
    assert live.asked[-1].kind == "preview"  # the sliders answer at once again
    live.view.receive({"set": {**values_of(request.settings), "min_size": 60}})
    assert live.asked[-1].kind == "preview"


def test_a_quick_pass_begins_by_itself_when_the_sliders_stand_still():
    image = live_image()
    first = exact(0, Settings(), pass_seconds=0.5)
    with viewing(replace(image, first=first, now=first)) as live:
        live.view.receive({"set": {"diameter": 60}})
        said = live.shown[-1].live
        assert said["state"] == "waiting"
        assert said["line"].endswith("the network runs, about 1 second")
        until(lambda: live.asked)
        (request,) = live.asked
        assert (request.kind, request.settings.diameter) == ("exact", 60)
        live.view.receive({"set": {"diameter": 15}})  # four times as many pixels
        assert live.shown[-1].live["state"] == "needs-pass"


def test_a_reference_can_be_set_and_returned_to(live):
    live.view.receive({"set": {"cellprob_threshold": -2.0}})
    until(lambda: len(live.asked) == 2)
    live.by.segmentation.answer(live.asked[0])
    assert live.shown[-1].scene["kinds"]["gained"] == 2
    live.view.receive({"do": "reference"})
    scene = live.shown[-1].scene
    assert (scene["kinds"]["kept"], scene["kinds"]["gained"]) == (5, 0)
    assert live.shown[-1].live["reference"]["cellprob_threshold"] == -2.0
    live.view.receive({"set": {"cellprob_threshold": 2.0}})
    live.view.receive({"do": "back"})
    assert live.asked[-1].settings.cellprob_threshold == -2.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"min_size": 1.5}, "min_size is 1.5; expected a whole number"),
        ({"min_size": True}, "min_size is True; expected a number"),
        ({"min_size": "4x"}, "min_size is '4x'; expected a number from -1 to 1000"),
        ({"niter": 1e9}, "niter"),
        ({"percentile_low": 99.5}, "percentile_low is 99.5; expected 0 to 30"),
        ({"cellprob_threshold": 99}, "cellprob_threshold is 99; expected -6 to 6"),
        ({"flow_threshold": -1}, "flow_threshold"),
        ({"do_3D": 1}, "expected values of cellprob_threshold"),
        ([], "expected values of"),
        ({"cellprob_threshold": float("inf")}, "cellprob_threshold"),
    ],
)
def test_strange_sliders_are_refused(live, values, message):
    with pytest.raises(BadInput, match=message):
        settings_at(values, Settings())
    live.view.receive({"set": values})
    said = live.shown[-1].live
    assert re.search(message, said["refusal"])
    assert (said["state"], live.asked) == ("exact", [])


def test_after_a_refusal_what_is_not_computed_yet_stays_so(live):
    """Else the cells of before would stand beside the diameter of now as if they were its own."""
    live.view.receive({"set": {"diameter": 42}})
    waiting = live.shown[-1].live
    assert waiting["state"] == "needs-pass"
    live.view.receive({"set": {"diameter": "abc"}})
    refused = live.shown[-1].live
    assert (refused["state"], refused["line"]) == ("needs-pass", waiting["line"])
    assert refused["values"]["diameter"] == 42
    assert "diameter is 'abc'" in refused["refusal"]
    live.view.receive({"set": {"diameter": 43}})
    assert live.shown[-1].live["refusal"] == ""


def test_sliders_give_back_the_settings_that_they_stand_for():
    for changes in (
        {},
        {"flow_threshold": None},
        {"diameter": 42.5, "niter": 400, "augment": True},
        {"normalize.percentile": (3.0, 98.0), "normalize.sharpen": 4.0},
        {"min_size": -1, "cellprob_threshold": -7.5},
    ):
        settings = Settings().replaced(**changes)
        assert settings_at(values_of(settings), settings) == settings


def test_a_problem_is_said_and_what_was_shown_stays(live):
    live.view.receive({"set": {"niter": 20}})
    live.by.segmentation.answer(live.asked[0], problem="not enough memory")
    assert (live.shown[-1].live["line"], live.shown[-1].scene) == ("not enough memory", None)


def test_where_no_cell_is_found_the_line_says_why_and_what_to_do(live):
    live.view.receive({"set": {"min_size": 1000}})
    until(lambda: len(live.asked) == 2)
    live.by.segmentation.answer(live.asked[-1])
    said = live.shown[-1].live
    expected = "min_size 1000 leaves none; with 15, as usual, there are 3 cells. Lower min_size"
    assert (said["state"], said["line"]) == ("empty", f"no cell is found. {expected}")


@pytest.mark.parametrize(
    ("changes", "no_cell", "expected"),
    [
        ({}, NoCell(-2.5, 0, 0, 0, ()), "the highest value that the network gives is -2.5. Lower"),
        ({}, NoCell(1, 7, 7, 0, ()), "flow_threshold 0.4 removed all 7 cells that the flows give"),
        ({}, NoCell(1, 7, 6, 2, ()), "max_size_fraction 0.4 removed 1, flow_threshold 0.4 removed"),
        ({"niter": 5}, NoCell(1, 0, 0, 0, (("niter", 4),)), "4 cells. Leave niter unset"),
        ({"diameter": 120.0}, NoCell(1, 7, 7, 0, ()), "give: set diameter, now 120, to that of"),
        ({"flow_threshold": 0.1}, NoCell(1, 7, 7, 0, (("flow_threshold", 4),)), "Raise flow_thr"),
    ],
)
def test_the_setting_that_left_no_cell_is_named(changes, no_cell, expected):
    settings = Settings().replaced(**changes)
    assert expected in WHY(LiveAnswer(1, "exact", settings, cells(settings), no_cell=no_cell))


def test_of_several_requests_that_wait_the_last_is_answered():
    """The process: previews and exact masks by two threads."""
    requests, answers, begun = queue.Queue(), queue.Queue(), threading.Event()
    may_end = threading.Event()

    class Slow:
        pass_seconds = 1.0

        def preview(self, settings):
            begun.set()
            may_end.wait(5)
            return np.zeros((2, 2), np.uint16)

        def exact(self, settings):
            raise BadInput("the image has no pixels")

    def receive():
        request = requests.get()
        if request is None:
            raise EOFError
        return request

    serving = threading.Thread(target=answer_requests, args=(Slow(), Inbox(), receive, answers.put))
    serving.start()
    requests.put(LiveRequest(1, "preview", Settings()))
    begun.wait(5)
    for number in (2, 3, 4):
        requests.put(LiveRequest(number, "preview", Settings()))
    requests.put(LiveRequest(5, "exact", Settings()))
    exact = answers.get(timeout=5)
    assert (exact.number, exact.masks, exact.problem) == (5, None, "the image has no pixels")
    may_end.set()
    assert [answers.get(timeout=5).number for _ in range(2)] == [1, 4]
    requests.put(None)
    serving.join(5)
    assert not serving.is_alive()


def test_exact_masks_that_nobody_wants_any_more_are_given_up():
    """A slider that moved does not wait for the settings before."""
    inbox, requests, answers = Inbox(), queue.Queue(), queue.Queue()
    begun, finished = threading.Event(), []

    class Stepwise:
        pass_seconds = 1.0

        def preview(self, settings):
            return np.zeros((2, 2), np.uint16)

        def exact(self, settings):
            begun.set()
            for _ in range(200 if settings.min_size == 3 else 1):
                inbox.stop_unwanted()
                time.sleep(0.01)
            finished.append(settings.min_size)
            return np.ones((2, 2), np.uint16)

    def receive():
        request = requests.get()
        if request is None:
            raise EOFError
        return request

    serving = threading.Thread(
        target=answer_requests, args=(Stepwise(), inbox, receive, answers.put)
    )
    serving.start()
    requests.put(LiveRequest(1, "exact", Settings(min_size=3)))
    begun.wait(5)
    requests.put(LiveRequest(2, "preview", Settings(min_size=4)))
    requests.put(LiveRequest(3, "exact", Settings(min_size=4)))
    assert {answers.get(timeout=5).number for _ in range(2)} == {2, 3}
    assert finished == [4]
    requests.put(None)
    serving.join(5)


def test_paths_are_followed_before_somebody_drags():
    """After exact masks a preview is made that nobody asked for, and nobody gets."""
    requests, answers, previewed = queue.Queue(), queue.Queue(), queue.Queue()

    class Quick:
        pass_seconds = 1.0

        def preview(self, settings):
            previewed.put(settings)
            return np.ones((2, 2), np.uint16)

        exact = preview

    def receive():
        request = requests.get()
        if request is None:
            raise EOFError
        return request

    serving = threading.Thread(
        target=answer_requests, args=(Quick(), Inbox(), receive, answers.put)
    )
    serving.start()
    requests.put(LiveRequest(1, "exact", Settings(min_size=3)))
    assert [previewed.get(timeout=5).min_size for _ in range(2)] == [3, 3]
    requests.put(LiveRequest(2, "preview", Settings()))
    assert [answers.get(timeout=5).number for _ in range(2)] == [1, 2]
    requests.put(None)
    serving.join(5)


def test_the_widget_sends_planes_before_the_scene_that_needs_them():
    image = live_image()
    widget = LiveExplorer(image)
    sent = []
    widget.send = lambda content, buffers=(): sent.append((content["plane"], widget.scene))
    before = widget.scene
    widget._handle_custom_msg({"live": {"set": {"cellprob_threshold": -3.0}}}, [])
    image.segmentation.answer(image.segmentation.asked[0])
    assert widget.scene["n_objects"] == {"a": 3, "b": 6}
    assert {scene == before for _, scene in sent} == {True}
    assert {widget.scene["planes"][key] for key in ("b", "story")} <= {name for name, _ in sent}
    widget.close()
    assert image.segmentation.is_closed


# -- in a browser ----------------------------------------------------------------------------


@contextmanager
def served(page):
    with LocalServer(page.routes()) as server:
        thread = threading.Thread(target=server.serve, args=("page",), kwargs={"browser": False})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_masks_follow_the_sliders_on_the_page(generators_free, browser, capsys):
    page_of_settings = LivePage(live_image(at_once=True), "tiny")
    with served(page_of_settings) as server, browsing(browser) as page:
        page.goto(server.address)
        page.locator('.cellrepro-explorer[data-ready="1"]').wait_for()
        slider = page.get_by_label("cellprob_threshold", exact=True)
        slider.fill("-3")
        page.locator('.crl[data-state="exact"]').wait_for()
        page.get_by_text("6 cells: exact, the masks of Cellpose itself").wait_for()
        page.locator('[data-kind="gained"] b', has_text="3").wait_for()
        page.get_by_text("--set cellprob_threshold=-3.0").wait_for()
        page.get_by_role("button", name="Set as reference").click()
        page.locator('[data-kind="gained"] b', has_text="0").wait_for()
        page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
        page.get_by_label("diameter, as a number").fill("15")
        page.get_by_role("button", name="Copy the command").click()
        page.get_by_role("button", name="Copied").wait_for()
        assert "--set diameter=15.0" in page.evaluate("window.copied")
        page.get_by_text("the network has to run again, about 12 seconds").wait_for()
        page.get_by_label("diameter, as a number").press("Enter")
        page.get_by_text("6 cells: exact").wait_for()
        finer = page.get_by_label("min_size", exact=True)
        finer.fill("246")
        assert page.get_by_label("min_size, as a number").input_value() == "60"
        page.get_by_label("min_size, as a number").fill("15")
        page.get_by_label("min_size, as a number").press("Enter")
        assert 125 < float(finer.input_value()) < 126  # the square root of 16 of 1 001
        page.get_by_label("min_size, as a number").fill("1.5")
        page.get_by_label("min_size, as a number").press("Enter")
        page.get_by_text("min_size is 1.5; expected a whole number").wait_for()
        page.get_by_label("min_size, as a number").fill("4x")
        page.get_by_label("min_size, as a number").press("Enter")
        page.get_by_text("min_size is '4x'; expected a number").wait_for()
        page.set_viewport_size({"width": 390, "height": 700})  # the picture stays in sight
        page.locator('.cellrepro-explorer[data-wide="0"]').wait_for()
        page.get_by_label("percentile, high", exact=True).scroll_into_view_if_needed()
        page.mouse.wheel(0, 200)
        picture = page.locator("canvas.cre-canvas").bounding_box()
        assert (picture["y"] >= 0, picture["height"] <= 350) == (True, True)
        for path, body in (("/choice", "[]"), ("/live", "7"), ("/choice", '{"a": "x"}')):
            status = page.evaluate(
                """([path, body]) => fetch(path, {
                    method: "POST", headers: {"Content-Type": "application/json"}, body,
                }).then((answer) => answer.status)""",
                [path, body],
            )
            assert status == 400
        assert page.evaluate("fetch('/plane?name=0/labels/x/0').then((a) => a.status)") == 400
    page_of_settings.close()
    assert json.dumps(page_of_settings.line)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "and no masks; expected two files of masks to compare, or --model"),
        (["nope.tif"], "nope.tif: no such file"),
        (["cells.tif"], "one file of masks; expected two files"),
        (
            ["cells.tif", "cells.tif", "--model", "tiny"],
            "expected either two masks to compare, or --model",
        ),
        (["--model", "tiny", "--html", "x.html"], "--html would do nothing with --model"),
        (
            ["cells.tif", "cells.tif", "--set", "diameter=3"],
            "--set would do nothing without --model",
        ),
        (["--model", "none such"], "unknown model 'none such'"),
    ],
)
def test_what_explore_cannot_do_is_refused(invoke, no_child, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    file = Path("cells.tif")
    tifffile.imwrite(file, np.zeros((32, 32), np.uint8))
    answer = invoke("explore", file, *words)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err


# -- in a process of its own -----------------------------------------------------------------


@pytest.mark.slow
def test_what_stands_still_is_what_segment_gives(small_store, tmp_path):
    """The process of the page has the profile and mode of any run."""
    folder = read_folder(small_store.data)
    file = folder.test[0].image_path
    settings = {"cellprob_threshold": 0.5, "diameter": 25}
    live = start_live(
        file,
        str(small_store.weights),
        settings=settings,
        moved={"flow_threshold": 0.2},
        truth=None,
        profile="cpu",
        mode="strict",
        seed=None,
        store=tmp_path,
    )
    try:
        answers: queue.Queue[LiveAnswer] = queue.Queue()
        live.answers.follow = answers.put
        moved = live.first.settings.replaced(flow_threshold=0.2)
        assert live.now.settings == moved
        live.segmentation.ask(LiveRequest(2, "preview", moved))
        live.segmentation.ask(LiveRequest(3, "exact", moved))
        both = [answers.get(timeout=60).masks for _ in range(2)]
    finally:
        live.segmentation.close()
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(file, alone / "cells.tif")
    run = cellrepro.segment(
        alone,
        model=str(small_store.weights),
        settings={**settings, "flow_threshold": 0.2},
        repeats=1,
        store=tmp_path / "store",
        quiet=True,
    )
    expected = run.repeats[0].masks("cells")
    for masks in (live.now.masks, *both):
        np.testing.assert_array_equal(masks, expected)
    commands = live.commands(moved).lab.command
    assert "--set flow_threshold=0.2" in commands
    assert str(small_store.weights) in commands


@pytest.mark.slow
def test_what_the_process_refuses_is_an_error_of_the_lab(small_store, tmp_path):
    given = {"truth": None, "profile": "cpu", "mode": "strict", "seed": None, "store": tmp_path}
    stack = np.zeros((3, 4, 32, 32, 2), np.uint8)
    with pytest.raises(CellreproError, match="expected one plane"):
        start_live(stack, str(small_store.weights), settings=None, moved=None, **given)


@pytest.mark.browser
@pytest.mark.slow
def test_sliders_in_jupyterlab(browser, tmp_path):
    """Masks arrive from threads of the kernel, while it is idle."""
    paths = [str(ROOT / folder) for folder in ("tests", "tests/show", "scripts")]
    code = (
        f"import sys; sys.path[:0] = {paths}\n"
        "from test_live_settings import live_image\n"
        "from cellrepro.show.explorer.live_widget import LiveExplorer\n"
        "LiveExplorer(live_image(at_once=True))"
    )
    write_notebook(tmp_path / "settings.ipynb", parameters="", body=code)
    with jupyterlab(tmp_path) as address, browsing(browser) as page:
        page.goto(address.format(notebook="settings.ipynb"))
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=120_000)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.locator('.cellrepro-explorer[data-ready="1"]').wait_for(timeout=120_000)
        page.get_by_label("cellprob_threshold", exact=True).fill("-3")
        page.get_by_text("6 cells: exact, the masks of Cellpose itself").wait_for(timeout=30_000)
        page.locator('[data-kind="gained"] b', has_text="3").wait_for()
