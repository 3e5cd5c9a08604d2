"""A store whose every text is an attack: where it is shown, nothing of it is executed."""

import json
from pathlib import Path

import nbformat
import pytest
import tifffile

import cellrepro
from cellrepro.show.explorer.stored_runs import explore_runs
from cellrepro.show.pages.explorer_page import explorer_page
from cellrepro.show.report.build import write_report
from cellrepro.store import manifest as records
from cellrepro.store.store import Store
from conftest import write_notebook
from lab_server import browsing, jupyterlab, show_widget, voila
from stores import TRUTH, add_run, some_machine, squares

ROOT = Path(__file__).resolve().parents[2]

MEMBER = "<img src=x onerror=window.pwned=1>"
"""Without a slash, so that it can be a file's name."""
ATTACKS = (
    MEMBER,
    "</title></textarea></style><script>window.pwned=2</script>",
    "</script><script>window.pwned=3</script>",
    "\"' autofocus onfocus=window.pwned=4 onmouseover=window.pwned=4 x='",
    "[click](javascript:window.pwned=5) <a href=javascript:window.pwned=5>click</a>",
    r"$\href{javascript:window.pwned=6}{click}$ $$\unicode{<img src=x onerror=window.pwned=6>}$$",
    "javascript:window.pwned=7",
    "{{ 7 * 7 }} ${window.pwned=8} `window.pwned=8`",
)
EVIL = " ".join(ATTACKS)

# What of a page could execute something: asked of the page itself, once it is shown.
SUSPECTS = """
() => {
  const found = [];
  for (const element of document.querySelectorAll("body *, head *")) {
    for (const { name, value } of element.attributes) {
      const leads = ["href", "src", "action", "formaction", "xlink:href"].includes(name);
      const is_code = leads && /^\\s*javascript:/i.test(value);
      if (is_code || name.startsWith("on")) found.push(`${element.tagName} ${name}=${value}`);
    }
    if (element.tagName === "SCRIPT" && element.textContent.startsWith("window.pwned")) {
      found.push("SCRIPT");
    }
  }
  return found;
}
"""


def assert_harmless(page):
    """Nothing ran, nothing could, also when the pointer passes over what is shown."""
    assert page.evaluate("window.pwned ?? 0") == 0
    assert page.evaluate(SUSPECTS) == []
    for link in page.locator("a", has_text="click").all():  # a link made of a text
        link.click()
    assert page.evaluate("window.pwned ?? 0") == 0


def hostile_run(store, n, **fields):
    """One of several repeats; image names differ in nothing that would hide an attack."""
    machine = some_machine(f"lab {MEMBER}", identity=EVIL, device=EVIL, versions={EVIL: EVIL})
    warned = records.HeardWarning(
        message=EVIL, category=EVIL, file=f"/home/{EVIL}/torch/a.py", line=7, phase=EVIL, count=4
    )
    data = records.DataRecord(
        path=EVIL,
        digest="d" * 64,
        files={},
        segmented="test",
        n_train=3,
        n_test=2,
        warnings=[EVIL],
    )
    manifest = {
        "machine": machine,
        "warnings": [warned],
        "vacuous": [EVIL],
        "data": data,
        "device": EVIL,
        "cpu_capability": EVIL,
        "host": {"processor": EVIL, "memory": 2**34, "gpus": [{"name": EVIL, "driver": EVIL}]},
        "versions": {"python": "3.11.7", "torch": EVIL, EVIL: EVIL},
        "distributions": {EVIL: EVIL},
        "variables": {"OMP_NUM_THREADS": EVIL},
        "switches": {EVIL: EVIL, "deterministic_algorithms": True},
        "numeric_libraries": [{"name": EVIL, "version": EVIL}],
        "numeric_class": {"name": EVIL, "probes": {EVIL: EVIL}},
    }
    both = [{MEMBER: squares(), "b": squares()}, {MEMBER: squares(second=False), "b": squares()}]
    found = [(1.0 + n + index, masks) for index, masks in enumerate(both)]
    usual = {"data": EVIL, "model": EVIL, "profile": MEMBER}
    return add_run(store, found, manifest=manifest, **{**usual, **fields})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Trainings of several seeds, a wrapped program, a failure, notebooks: all of them hostile."""
    store = Store(tmp_path_factory.mktemp("hostile") / "outputs")
    runs = [hostile_run(store, n, seed=n) for n in range(3)]
    program = {"task": "wrap", "epochs": 0, "learning_rate": 0.0, "program": (EVIL, "{image}")}
    masks = {MEMBER: squares(), "b": squares()}
    add_run(store, [(None, masks), (None, masks)], data=EVIL, model=EVIL, **program)
    store.keep_failure(store.root, runs[0].spec, machine="abacus", repeat=0, reason=EVIL)
    for repeat in runs[0].repeats:
        output = nbformat.v4.new_output("display_data", {"text/html": EVIL})
        cell = nbformat.v4.new_code_cell("1", outputs=[output])
        notebook = nbformat.v4.new_notebook(cells=[cell, nbformat.v4.new_markdown_cell(EVIL)])
        nbformat.write(notebook, repeat.folder / "notebook.ipynb")
    return store


@pytest.mark.browser
def test_an_attack_would_be_noticed(browser):
    """Each of the texts, put on a page as it is, is found in one way or the other."""
    for attack in ATTACKS[:4]:
        with browsing(browser) as page:
            page.set_content(f"<title>{attack}</title><p title='{attack}'>{attack}</p>")
            page.wait_for_timeout(50)
            assert page.evaluate("window.pwned ?? 0") or page.evaluate(SUSPECTS), attack


@pytest.mark.browser
def test_the_report(browser, store, tmp_path):
    report = write_report(store, html=tmp_path / "report.html")
    with browsing(browser) as page:
        page.goto(report.html.as_uri())
        assert_harmless(page)
        shown = page.locator("body").inner_text()
    assert "window.pwned=2" in shown  # it is there to be read
    assert "window.pwned=4" in shown


@pytest.mark.browser
def test_the_page_about_two_runs_and_two_files(browser, store, tmp_path):
    run = next(run for run in store.runs() if run.spec.task == "train")
    a, b = (repeat.name for repeat in run.repeats)
    cellrepro.compare(a, b, html=tmp_path / "runs.html", store=store.root)
    for name, labels in (("image", 100 * TRUTH), ("a", squares()), ("b", squares(second=False))):
        tifffile.imwrite(tmp_path / f"{name}{MEMBER}.tif", labels.astype("uint16"))
        settings = {"settings": {"diameter": EVIL}, EVIL: EVIL, "precision": EVIL}
        (tmp_path / f"{name}{MEMBER}.json").write_text(json.dumps(settings))
    image, first, second = (tmp_path / f"{name}{MEMBER}.tif" for name in ("image", "a", "b"))
    cellrepro.compare(first, second, image=image, html=tmp_path / "files.html")
    explorer_page(image, first, second, name_a=EVIL, html=tmp_path / "explorer.html")
    for name in ("runs", "files", "explorer"):
        with browsing(browser) as page:
            page.goto((tmp_path / f"{name}.html").as_uri())
            page.wait_for_timeout(500)
            assert_harmless(page)


@pytest.mark.browser
def test_the_explorer(browser, store):
    widget = explore_runs(store, title=EVIL)
    with browsing(browser) as page:
        show_widget(page, widget)
        page.locator('.cellrepro-explorer[data-ready="1"][data-loading="0"]').wait_for()
        page.locator("canvas.cre-canvas").press("n")
        page.wait_for_timeout(300)
        assert_harmless(page)
        assert "window.pwned=1" in page.locator("body").inner_html()


_IN_A_NOTEBOOK = """
import sys
import cellrepro
import pandas
from IPython.display import display
from cellrepro import show
from cellrepro.comparison.seed_spread import measure_spread
from cellrepro.comparison.judgement import judge

store = cellrepro.Store({store!r})
runs = [run for run in store.runs() if run.spec.task == "train"]
repeats = [repeat for run in runs for repeat in run.repeats]
first, second = runs[0].repeats
compared = cellrepro.compare(first.name, second.name, store=store.root)
spread = measure_spread(store.runs()[:0] or runs)
texts = [spread.sentence(), str(compared), *compared.notes, runs[0].spec.label, {evil!r}]
display(show.markdown("\\n\\n".join(f"**{{text}}**" for text in texts)))
for result in (compared, spread, judge([r.outcome for r in repeats]), cellrepro.check_store(store)):
    display(result)
display(show.table_of_runs(store, runs))
tables = [show.warning_table(repeats)]
scored = {{{evil!r}: list(compared.masks.values())}}
tables += [show.kind_table(compared.masks), show.score_table(scored)]
for table in tables:
    display(table)
    display(show.readable(table))
display(show.scores_of_runs(runs))
print("all of it is shown")
"""


@pytest.mark.browser
@pytest.mark.slow
def test_tables_and_sentences_in_a_notebook_that_jupyter_trusts(browser, store, tmp_path):
    """JupyterLab cleans nothing of what was executed in it: links, formulas, HTML."""
    code = _IN_A_NOTEBOOK.format(store=str(store.root), evil=EVIL)
    write_notebook(tmp_path / "look.ipynb", parameters="", body=code)
    with jupyterlab(tmp_path) as address, browsing(browser) as page:
        page.goto(address.format(notebook="look.ipynb"))
        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=60_000)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.get_by_text("all of it is shown", exact=True).wait_for(timeout=60_000)
        page.wait_for_timeout(1_000)  # formulas are set later
        assert "window.pwned=1" in page.locator(".jp-OutputArea").last.inner_text()
        assert page.evaluate("window.pwned ?? 0") == 0
        assert page.evaluate(SUSPECTS) == []
        assert page.locator(".jp-OutputArea a", has_text="click").count() == 0


@pytest.mark.browser
@pytest.mark.slow
def test_the_explorer_that_voila_serves(browser, store, tmp_path):
    notebook = ROOT / "notebooks/07_explorer.ipynb"
    with voila(tmp_path, notebook, store.root) as address, browsing(browser) as page:
        page.goto(address, timeout=60_000)
        page.locator('.cellrepro-explorer[data-ready="1"]').wait_for(timeout=60_000)
        page.wait_for_timeout(500)
        assert_harmless(page)
