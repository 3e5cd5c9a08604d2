"""Every command of the command line: its function, what is said of it, and what it needs.

Nothing here is imported until a command is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A public function as a command."""

    function: str
    """Path of the function below this package, ``ROOM.FILE:NAME``."""
    words: str
    """What the list of commands says of it."""
    needs: tuple[str, ...] = ()
    """Modules that it always needs beside the core; others it may lack only as it runs."""
    needs_only_with: str | None = None
    """The option or argument without which it needs none of them."""
    about_this_cellpose: bool = False
    """Whether its answer is about the installed Cellpose; the lab has another one."""
    is_of_store: bool = False
    """Whether it answers about a whole store, and refuses one that was named and is not there."""

    def needed(self, options: Mapping[str, object]) -> tuple[str, ...]:
        """The modules that it needs with these options."""
        deciding = self.needs_only_with
        if deciding is not None and options.get(deciding) in (None, False):
            return ()
        return self.needs


_NETWORK = ("torch", "cellpose", "pyarrow")
_NOTEBOOKS = (*_NETWORK, "papermill", "nbformat", "ipykernel")

COMMANDS: Mapping[str, Mapping[str, Command]] = {
    "Two files": {
        "open": Command(
            "show.pages.open_page:open_page",
            "Drop an image and two results on a page in the browser, and compare them.",
        ),
        "compare": Command(
            "show.pages.compare:compare",
            "Are two results the same, cell by cell, and if not, why?",
            needs=_NETWORK,
            needs_only_with="model",
            about_this_cellpose=True,
        ),
        "explore": Command(
            "show.pages.explorer_page:explore_files",
            "Look at two masks in the browser, or move settings and see the cells.",
            needs=_NETWORK,
            needs_only_with="model",
            about_this_cellpose=True,
        ),
        "describe": Command(
            "exchange.description:describe", "Say what a file is, and how it was made."
        ),
    },
    "Segment and train": {
        "segment": Command(
            "run.segment:segment",
            "Segment the same images several times: is every mask the same?",
            needs=_NETWORK,
            about_this_cellpose=True,
        ),
        "train": Command(
            "run.train:train",
            "Train one network several times: are the results equal?",
            needs=_NETWORK,
        ),
        "wrap": Command("run.wrap:wrap", "Segment several times with a program of your own."),
        "wrap-python": Command(
            "run.wrap:wrap_python",
            "Segment several times with a function of your own.",
        ),
        "grid": Command(
            "show.shown_grid:grid",
            "Run every combination of a grid file.",
            needs=_NOTEBOOKS,
        ),
        "watch": Command(
            "show.watched_grids:follow",
            "Show how far the grids of a store are.",
            needs=("rich",),
        ),
    },
    "Find the cause": {
        "explain": Command(
            "explanation.explain:explain",
            "Why do two results of one image differ?",
            needs=_NETWORK,
            needs_only_with="image",
            about_this_cellpose=True,
        ),
        "sensitivity": Command(
            "show.sensitivity:sensitivity",
            "How many cells does each setting change?",
            needs=_NETWORK,
            about_this_cellpose=True,
        ),
        "forecast": Command(
            "show.forecast:forecast",
            "Which cells would be different on other computers?",
            needs=_NETWORK,
            about_this_cellpose=True,
        ),
        "tiles": Command(
            "explanation.tiles:tiles",
            "Which cells depend on where Cellpose's tiles lie?",
            needs=_NETWORK,
            needs_only_with="data",
            about_this_cellpose=True,
        ),
        "diverge": Command(
            "divergence.diverge:diverge",
            "Find the first place where two runs differ.",
            needs=_NETWORK,
        ),
        "growth": Command(
            "divergence.growth:growth", "Show how two trainings grow apart.", needs=_NETWORK
        ),
        "audit": Command(
            "audits.audit_data:audit_data",
            "Which operations give different bits?",
            needs=_NETWORK,
            about_this_cellpose=True,
        ),
        "doctor": Command(
            "audits.doctor:doctor", "Say what is not reproducible on this computer.", needs=_NETWORK
        ),
    },
    "Hand on": {
        "export": Command("exchange.handing_on:export", "Put runs into one file for someone else."),
        "import": Command(
            "exchange.handing_on:import_file",
            "Check an exported file, and merge it into a store.",
        ),
        "verify": Command(
            "exchange.verification:verify",
            "Check a run, a passport or an exported file without trust.",
            needs=_NETWORK,
            needs_only_with="replay",
        ),
        "track": Command(
            "exchange.tracking:track", "Log finished runs in MLflow.", needs=("mlflow",)
        ),
    },
    "The store": {
        "list": Command("show.run_list:list_runs", "List what the store holds."),
        "report": Command(
            "show.report.build:write_report",
            "Write one page about all runs in the store.",
            needs=("pandas", "pyarrow"),
            is_of_store=True,
        ),
        "fsck": Command(
            "exchange.store_check:check_store",
            "Check that every file of the store is as it was written.",
            is_of_store=True,
        ),
    },
    "Set up": {
        "setup": Command(
            "process.lab_setup:set_up_lab", "Make the full lab in an environment of its own."
        ),
        "data": Command(
            "images.image_sets:data", "Make the synthetic images, or fetch a public set."
        ),
        "notebooks": Command(
            "grid.packaged_files:copy_packaged", "Copy out the notebooks and grids."
        ),
        "demo": Command(
            "demo:run_demo",
            "Do everything once: train, compare, report, notebooks.",
            needs=(*_NOTEBOOKS, "pandas"),
        ),
    },
}
"""The commands, by their names, in the groups in which help lists them."""

OF_BASELINE: Mapping[str, Command] = {
    "save": Command(
        "explanation.baseline_saving:save_baseline",
        "Write the masks of RUN to FILE, a new baseline.",
    ),
    "check": Command(
        "explanation.baseline_check:check_baseline",
        "Compare MASKS with FILE, a baseline saved before.",
    ),
}
"""The commands below ``baseline``."""

BY_NAME: Mapping[str, Command] = {
    name: command for group in COMMANDS.values() for name, command in group.items()
}
"""The commands that are below no other one."""

BY_WORDS: Mapping[str, Command] = {
    **BY_NAME,
    **{f"baseline {name}": command for name, command in OF_BASELINE.items()},
}
"""All commands, by the words that call them."""
