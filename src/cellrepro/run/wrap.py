"""`wrap` and `wrap_python`: runs of any other segmenter, a program or a function."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from cellrepro.progress import print_note
from cellrepro.run.function_segmenter import plan_function
from cellrepro.run.options import WrapOptions
from cellrepro.run.outcome import Outcome
from cellrepro.run.plan import Plan
from cellrepro.run.program_segmenter import plan_program
from cellrepro.run.repeats import carry_out
from cellrepro.spec import defaults
from cellrepro.stated import STATED
from cellrepro.terminal import FileName, Quiet, Words
from samebits.mode_names import Mode
from samebits.words import amount


def wrap(
    data: FileName,
    *command: Words,
    mode: Literal["fast", "off"] = "fast",
    seed: int | None = None,
    profile: str = defaults.PROFILE,
    timeout: float | None = None,
    repeats: int = defaults.SEGMENTATIONS,
    store: FileName = defaults.STORE,
    quiet: Quiet = False,
) -> Outcome:
    """Run a program over every image ``repeats`` times, and compare what it wrote.

    Parameters
    ----------
    data : str or Path
        Folder of images as for `segment`.
    *command : str
        The program and its words, or one line as for a shell; in a terminal what stands after
        ``--``. ``{image}`` stands for the path of an image, ``{masks}`` for that of the label image
        it writes: a TIFF, or as ``{masks.png}`` or ``{masks.npy}`` says.
    mode : {"fast", "off"}
        ``fast`` hands the seed over, as ``CELLREPRO_SEED`` and ``PYTHONHASHSEED``.
    seed : int, optional
        By default 0, and none in mode ``off``.
    profile : str
        Of it the environment variables reach the program.
    timeout : float, optional
        Seconds that an image may take.
    repeats : int
        How often; 2 are needed for a verdict.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show neither progress nor notices.

    Returns
    -------
    Outcome
        Its ``str`` is the verdict in a sentence; in a notebook it shows a table of the repeats,
        too.

    Raises
    ------
    BadInput
        If the folder cannot be read or an option or the command cannot be used; if the program
        fails, or what it writes is no label image of the image's shape.
    NotPossibleHere
        If an image takes longer than ``timeout``, or this machine lacks what the profile asks for.
    RunError
        If the process that starts the program ends without finishing. Nothing of a repeat that
        ended with an error is stored.

    Examples
    --------
    Run your own script twice on each image

    ``cellrepro wrap my_images -- python segment.py {image} {masks}``
    """
    options = WrapOptions(data=data, mode=mode, seed=seed, profile=profile, store=store)
    in_python = not STATED.get()  # a terminal's only word is the program, whatever its name
    words = command[0] if len(command) == 1 and in_python else [str(word) for word in command]
    plan = plan_program(options, words, timeout=timeout)
    return _carried_out(plan, repeats, quiet=quiet)


def wrap_python(
    function: str,
    data: FileName,
    *,
    mode: Mode = defaults.MODE,
    seed: int | None = None,
    profile: str = defaults.PROFILE,
    repeats: int = defaults.SEGMENTATIONS,
    store: FileName = defaults.STORE,
    quiet: Quiet = False,
) -> Outcome:
    """Call a function on every image ``repeats`` times, each time in a new process, and compare.

    What names the run are the content of the function's file and of those that it imports from
    beside it or from its own package. What is installed, and what it reads, is not looked at.

    Parameters
    ----------
    function : str
        ``MODULE:FUNCTION`` or ``FILE.py:FUNCTION``. It takes an image, shape (Y, X) or (Y, X, C)
        with its dtype as stored, and returns its label image alone: whole numbers of shape (Y, X),
        0 for background; of a stack, (Z, Y, X) or (Z, Y, X, C), one of shape (Z, Y, X). One more
        axis of length 1 is taken off.
    data : str or Path
        Folder of images as for `segment`.
    mode : {"off", "fast", "warn", "strict", "portable"}
        In force around the function, as around `segment`. In mode ``off`` nothing is
        seeded, Python's hashes of text included; every other mode fixes them, so that an order of
        sets that changes by itself is only seen in mode ``off``.
    seed : int, optional
        For Python, NumPy and PyTorch; by default 0, and none in mode ``off``.
    profile : str
        Numeric environment: the name of one, or a ``.yaml`` file.
    repeats : int
        How often; 2 are needed for a verdict.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show neither progress nor notices.

    Returns
    -------
    Outcome
        Its ``str`` is the verdict in a sentence; in a notebook it shows a table of the repeats,
        too.

    Raises
    ------
    BadInput
        If the folder cannot be read, an option cannot be used, or there is no such function; if the
        function fails, or what it returns is no label image of the image's shape.
    NotPossibleHere
        If this machine lacks what the profile asks for.
    RunError
        If the process of the function ends without finishing. Nothing of a repeat that ended with
        an error is stored.

    Examples
    --------
    Call your own function three times on each image

    ``cellrepro wrap-python segment.py:segment my_images --repeats 3``
    """
    options = WrapOptions(data=data, mode=mode, seed=seed, profile=profile, store=store)
    return _carried_out(plan_function(options, function), repeats, quiet=quiet)


def _carried_out(plan: Plan, repeats: int, *, quiet: bool) -> Outcome:
    """Carry out a plan, and print which of its repeats were stored before."""
    outcome = carry_out(plan, repeats=repeats, quiet=quiet)
    if outcome.stored_before and not quiet:
        print_note(_of_stored(outcome))
    return outcome


def _of_stored(outcome: Outcome) -> str:
    """Say what was not run, when it was made, and how to run it all the same."""
    stored = outcome.stored_before
    # Local time is for reading only: a clock may be set back, so it decides nothing.
    times = [datetime.fromisoformat(repeat.manifest.started) for repeat in stored]
    last = max(times).astimezone().strftime("%Y-%m-%d %H:%M")
    return (
        f"stored already and not run again: {len(stored)} of "
        f"{amount(len(outcome.repeats), 'repeat')}, the last made on {last}, "
        "as the command or function and the files that name the run are the same; "
        "what they read or import from elsewhere is not looked at: where that has changed, "
        f"give another store, or remove {outcome.folder}"
    )
