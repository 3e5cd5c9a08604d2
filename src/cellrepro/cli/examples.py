"""One or two examples of each command, as its ``--help`` shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_DO_NOT_WRAP = "\b"
"""On a line of its own: Typer leaves the lines of the paragraph after it as they are."""


@dataclass(frozen=True)
class Example:
    """A command line that works, and what it is good for."""

    purpose: str
    """What a user gets from it, in a few words."""
    command: str
    """The whole command line, as typed."""


EXAMPLES: Mapping[str, Sequence[Example]] = {
    "train": (
        Example(
            "Train a small network twice; is every weight the same?",
            "cellrepro train data/synthetic --epochs 12 --seed 0",
        ),
        Example(
            "Train Cellpose's own network further on your images",
            "cellrepro train my_images --model cpsam_v2 --epochs 100 --profile auto",
        ),
    ),
    "segment": (
        Example(
            "Segment a folder three times; is every mask the same?",
            "cellrepro segment my_images --repeats 3",
        ),
        Example(
            "Segment once with your settings, and write the masks",
            "cellrepro segment my_images --repeats 1 --set diameter=60 --masks-into masks",
        ),
    ),
    "wrap": (
        Example(
            "Run your own script twice on each image",
            "cellrepro wrap my_images -- python segment.py {image} {masks}",
        ),
    ),
    "wrap-python": (
        Example(
            "Call your own function three times on each image",
            "cellrepro wrap-python segment.py:segment my_images --repeats 3",
        ),
    ),
    "compare": (
        Example(
            "Two files of masks: which cells differ?",
            "cellrepro compare gui_seg.npy script_masks.tif",
        ),
        Example(
            "The same as a page with pictures",
            "cellrepro compare a_masks.tif b_masks.tif --image cells.tif --html page.html",
        ),
    ),
    "explore": (
        Example(
            "Look at two results of one image in the browser",
            "cellrepro explore cells.tif a_masks.tif b_masks.tif",
        ),
    ),
    "describe": (
        Example(
            "What is this file of weights, and does Cellpose load it?",
            "cellrepro describe my_model.pth",
        ),
        Example(
            "With which settings did the GUI make these masks?",
            "cellrepro describe cells_seg.npy --command",
        ),
    ),
    "explain": (
        Example(
            "Which recorded settings differ?",
            "cellrepro explain gui_seg.npy script_masks.tif",
        ),
        Example(
            "Segment again, one change at a time: which change explains it?",
            "cellrepro explain gui_seg.npy script_masks.tif --image cells.tif",
        ),
    ),
    "sensitivity": (
        Example(
            "How many cells does each setting change?",
            "cellrepro sensitivity my_images",
        ),
        Example(
            "Only the diameter, with these values, and plots of it",
            'cellrepro sensitivity my_images --vary "diameter=[20, 40]" --figures plots',
        ),
    ),
    "tiles": (
        Example(
            "Find straight cuts in masks that you have",
            "cellrepro tiles --masks cells_masks.tif",
        ),
        Example(
            "Which cells depend on where the tiles lie?",
            "cellrepro tiles my_images",
        ),
    ),
    "baseline save": (
        Example(
            "Save masks as the result that later ones must match",
            "cellrepro baseline save masks nuclei.baseline",
        ),
    ),
    "baseline check": (
        Example(
            "Fail if a cell of the baseline is lost",
            "cellrepro baseline check nuclei.baseline new_masks --max-lost 0",
        ),
    ),
    "doctor": (
        Example(
            "What is not reproducible on this computer?",
            "cellrepro doctor",
        ),
        Example(
            "What does a warning of PyTorch mean for my results?",
            'cellrepro doctor --warning "cumsum_cuda_kernel does not have ..."',
        ),
        Example(
            "Does this computer get the same bits as all others in mode portable?",
            "cellrepro doctor --portable",
        ),
    ),
    "audit": (
        Example(
            "Which operations of a training do not repeat?",
            "cellrepro audit data/synthetic --profile auto",
        ),
        Example(
            "Which operations of a segmentation do not repeat?",
            "cellrepro audit my_images --task segment",
        ),
    ),
    "diverge": (
        Example(
            "Where do repeats 0 and 1 of a run differ first?",
            "cellrepro diverge KEY/0 KEY/1",
        ),
    ),
    "growth": (
        Example(
            "How does the difference of two trainings grow?",
            "cellrepro growth KEY/0 OTHER_KEY/0",
        ),
    ),
    "grid": (
        Example(
            "What would run, and how long would it take?",
            "cellrepro grid grids/demo.yaml --dry-run",
        ),
        Example(
            "Run it with the random seeds 2 and 3, two processes at once",
            'cellrepro grid grids/demo.yaml --set "seed=[2, 3]" --workers 2',
        ),
    ),
    "watch": (
        Example(
            "How far are the grids of this store?",
            "cellrepro watch --store outputs",
        ),
    ),
    "report": (
        Example(
            "One page about all runs of a store",
            "cellrepro report --output report.html",
        ),
    ),
    "list": (
        Example(
            "Which runs were made with this profile?",
            "cellrepro list --where profile=cpu",
        ),
    ),
    "import": (
        Example(
            "Merge the runs of a file that was sent to you into your store",
            "cellrepro import runs.cellrepro.zip",
        ),
        Example(
            "Or into a store of their own",
            "cellrepro import runs.cellrepro.zip --store from_basel",
        ),
    ),
    "verify": (
        Example(
            "Is every file of a run that was sent as its sender made it?",
            "cellrepro verify basel.cellrepro.zip",
        ),
        Example(
            "Compute it again here, and add what came of it to the passport",
            "cellrepro verify basel.cellrepro.zip --replay --receipt us.intoto.jsonl",
        ),
    ),
    "fsck": (
        Example(
            "Is every file of the store as it was stored?",
            "cellrepro fsck",
        ),
        Example(
            "Put right what can be: from equal files, without leftovers",
            "cellrepro fsck --repair",
        ),
    ),
    "track": (
        Example(
            "Log two repeats in MLflow, with their weights",
            "cellrepro track KEY/0 KEY/1 --tracking-uri http://127.0.0.1:5000 --weights",
        ),
    ),
    "export": (
        Example(
            "One file with a run, its networks and its images, for someone who will check it",
            "cellrepro export 0a1b2c3d runs.cellrepro.zip --weights --images",
        ),
        Example(
            "A small file that says what was asked for, what came out and on what, signed by you",
            "cellrepro export 0a1b2c3d run.intoto.jsonl --sign ~/.ssh/id_ed25519.pub",
        ),
        Example(
            "The trained network as Cellpose loads it, with its passport beside it",
            "cellrepro export 0a1b2c3d mine.pth",
        ),
        Example(
            "What can be known of a network from elsewhere, and what cannot",
            "cellrepro export theirs.pth theirs.intoto.jsonl",
        ),
        Example(
            "The network as a package of bioimage.io, with a tolerance that was measured",
            'cellrepro export 0a1b2c3d my.bioimageio.zip --author "Ada L." --license MIT',
        ),
    ),
    "demo": (
        Example(
            "Everything once, on images of your own",
            "cellrepro demo my_images --model cpsam_v2",
        ),
    ),
    "data": (
        Example(
            "Make the small synthetic images in data/synthetic",
            "cellrepro data synthetic",
        ),
        Example(
            "Which image sets are there?",
            "cellrepro data",
        ),
    ),
    "notebooks": (
        Example(
            "Copy the notebooks and grids into a new folder",
            "cellrepro notebooks my_study",
        ),
    ),
    "setup": (
        Example(
            "Make the lab in the new folder lab; your Cellpose stays as it is",
            "cellrepro setup lab",
        ),
        Example(
            "The same with the versions with which a run was made",
            "cellrepro setup lab_of_basel --like basel.intoto.jsonl",
        ),
    ),
}
"""Of every command, by its words after ``cellrepro``."""


def examples_text(command: str) -> str | None:
    """Give what ``--help`` of a command shows after its options.

    None for a command without an example.
    """
    examples = EXAMPLES.get(command, ())
    if not examples:
        return None
    title = "Example:" if len(examples) == 1 else "Examples:"
    paragraphs = [title]
    for example in examples:
        paragraphs.append(f"{_DO_NOT_WRAP}\n{example.purpose}\n  {example.command}")
    return "\n\n".join(paragraphs)
