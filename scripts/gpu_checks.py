"""Check what the lab claims on one device, with the lab's own commands.

    python scripts/gpu_checks.py --profile cuda --out gpu_checks.json

Synthetic images, and `tiny` or (``--encoder vit-l``) Cellpose's network in SAM's ViT-L size with
weights drawn from a seed: nothing is downloaded. Results are written after every check, so that
an interrupted run keeps what it has. ``--profile cpu`` makes the same checks on a laptop.

Exit code 0: every claim that was checked holds; 1: one does not, a check broke off, or none was
made.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

SOURCE = Path(__file__).resolve().parents[1] / "src"
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")])),
}
SWITCHES = ("cudnn_benchmark", "cudnn_deterministic", "cuda_matmul_allow_tf32")

Document = Any
"""JSON, as a command printed it."""


# -- checks and what they find -------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """What a check found."""

    holds: bool | None
    """Whether the claim holds; None where nothing is claimed."""
    document: Document
    """What was measured."""

    @property
    def status(self) -> Literal["passed", "failed", "seen"]:
        """In a word."""
        if self.holds is None:
            return "seen"
        return "passed" if self.holds else "failed"


Check = Callable[["Lab"], Finding]

CHECKS: dict[str, Check] = {}
"""By name, in the order in which they are made: that in which they stand below."""


def check(function: Check) -> Check:
    """Make a function one of the checks."""
    CHECKS[function.__name__.replace("_", "-")] = function
    return function


@dataclass(frozen=True)
class Outcome:
    """How a check ended: what it found, or why it did not."""

    status: Literal["passed", "failed", "seen", "error", "skipped"]
    seconds: float
    found: Document = None
    why: str = ""


def main() -> int:
    """Make the checks, write what each found, and say whether every claim holds."""
    arguments = read_arguments()
    end = time.monotonic() + 60 * arguments.minutes
    outcomes: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as scratch:
        lab = Lab(Path(scratch), arguments.profile, arguments.encoder, arguments.epochs)
        lab.write_images()
        for name in arguments.only or CHECKS:
            outcome = outcome_of(CHECKS[name], lab, end=end)
            outcomes[name] = outcome
            write_report(arguments.out, lab, outcomes)
            print(f"{name:14} {outcome.status:8} {outcome.seconds:6.1f} s", flush=True)
    statuses = {outcome.status for outcome in outcomes.values()}
    return 0 if "passed" in statuses and not {"failed", "error"} & statuses else 1


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="cuda")
    parser.add_argument("--encoder", choices=("tiny", "vit-l"), default="tiny")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("gpu_checks.json"))
    parser.add_argument("--minutes", type=float, default=9.0, help="no check begins beyond these")
    parser.add_argument("--only", nargs="+", choices=list(CHECKS), metavar="CHECK")
    return parser.parse_args()


def outcome_of(make: Check, lab: Lab, *, end: float) -> Outcome:
    """Make a check, if it can begin before the end."""
    started = time.monotonic()
    if started >= end:
        return Outcome("skipped", 0.0, why="the time is over")
    try:
        finding = make(lab)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        why = f"{type(error).__name__}: {error}"[-2000:]
        return Outcome("error", round(time.monotonic() - started, 1), why=why)
    seconds = round(time.monotonic() - started, 1)
    return Outcome(finding.status, seconds, found=finding.document)


def write_report(file: Path, lab: Lab, outcomes: dict[str, Outcome]) -> None:
    report = {
        "profile": lab.profile,
        "encoder": lab.encoder,
        "checks": {name: asdict(outcome) for name, outcome in outcomes.items()},
    }
    file.write_text(json.dumps(report, indent=1, default=str), encoding="utf-8")


# -- the lab, by its commands --------------------------------------------------------------------


@dataclass(frozen=True)
class Lab:
    """A folder of images, a starting network and a store, on one profile."""

    folder: Path
    """Holds the images, the store and what the checks write."""
    profile: str
    """A name, or a file."""
    encoder: str
    epochs: int

    @property
    def data(self) -> Path:
        """Four training and two test images."""
        return self.folder / "synthetic"

    @property
    def store(self) -> Path:
        """Where all runs are."""
        return self.folder / "store"

    @property
    def device(self) -> str:
        """What a profile of this package computes on, as its name begins: ``cpu``, ``cuda``."""
        return self.profile.partition("-")[0]

    @property
    def on_cpu(self) -> Lab:
        """The same lab on the processor."""
        return replace(self, profile="cpu")

    def write_images(self) -> None:
        """Draw the images."""
        run_python(
            "import sys; from pathlib import Path\n"
            "from cellrepro.images.synthetic_sets import write_folder\n"
            "write_folder(Path(sys.argv[1]), n_train=4, n_test=2)",
            self.data,
        )

    def with_setting(self, name: str, setting: str) -> Lab:
        """The same lab with a profile of the same device that has one more line."""
        path = self.folder / f"{name}.yaml"
        path.write_text(f"device: {self.device}\nthreads: 2\n{setting}\n", encoding="utf-8")
        return replace(self, profile=str(path))

    def call(self, verb: str, *words: object) -> Document:
        """What a command prints as JSON; an error if its exit code is neither 0 nor 1."""
        command = [sys.executable, "-m", "cellrepro", verb, *map(str, words), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{verb} ended with {done.returncode}: {done.stderr[-1500:]}")
        return json.loads(done.stdout)

    def train(self, mode: str, *words: object) -> Document:
        """Train, twice if the words do not say otherwise."""
        options = ["--model", self.encoder, "--profile", self.profile, "--mode", mode]
        options += ["--epochs", self.epochs, "--images-per-epoch", 4, "--store", self.store]
        return self.call("train", self.data, *options, *words)

    def trained(self) -> Document:
        """Train once in mode strict, or get the run that is in the store."""
        return self.train("strict", "--repeats", 1)

    def segment_once(self, model: str, *words: object) -> str:
        """Segment with a network; the name of the repeat."""
        options = ["--model", model, "--profile", self.profile, "--store", self.store]
        run = self.call("segment", self.data, *options, "--repeats", 1, *words)
        return f"{run['key']}/0"

    def audit(self, mode: str) -> Document:
        """Execute the operations of one step four times again."""
        options = ["--model", self.encoder, "--profile", self.profile, "--mode", mode]
        return self.call("audit", self.data, *options, "--steps", 1, "--replays", 4)

    def compare(self, a: str, b: str) -> Document:
        """Compare two runs."""
        return self.call("compare", a, b, "--store", self.store)

    def diverge(self, a: str, b: str) -> Document:
        """Find where two repeats part."""
        return self.call("diverge", a, b, "--store", self.store)


def run_python(code: str, *words: object) -> None:
    """Run some lines in a process of their own; the words are their ``sys.argv``."""
    command = [sys.executable, "-c", code, *map(str, words)]
    subprocess.run(command, check=True, env=ENVIRONMENT)


def manifest_of(run: Document) -> Document:
    """Read the manifest of the only repeat of a run."""
    (path,) = Path(run["folder"]).glob("*/0/manifest.json")
    return json.loads(path.read_text(encoding="utf-8"))


def weights_of(run: Document) -> str:
    """The digest of the network of a run's first repeat."""
    return run["repeats"][0]["weights"]


# -- the checks ----------------------------------------------------------------------------------


@check
def environment(lab: Lab) -> Finding:
    """What this is measured on."""
    return Finding(None, lab.call("doctor", "--profile", lab.profile))


@check
def strict_repeats(lab: Lab) -> Finding:
    """Two strict trainings, in processes of their own, end in the same bits."""
    run = lab.train("strict")
    weights = {repeat["weights"] for repeat in run["repeats"]}
    return Finding(len(weights) == 1, run)


@check
def portable_witness(lab: Lab) -> Finding:
    """In mode portable the device computes the reference bits, stage by stage."""
    found = lab.call("doctor", "--portable", "--profile", lab.profile)
    return Finding(found["ok"], found)


@check
def portable_beside_the_cpu(lab: Lab) -> Finding:
    """A training and its masks in mode portable are those of the processor; what that costs."""
    here = lab.train("portable", "--repeats", 1)
    on_processor = lab.on_cpu.train("portable", "--repeats", 1)
    comparison = lab.compare(here["key"], on_processor["key"])
    is_same = weights_of(here) == weights_of(on_processor)
    runs = {"here": here, "on the processor": on_processor, "strict": lab.trained()}
    found = {
        "weights": {name: weights_of(run) for name, run in runs.items()},
        "verdict": comparison["verdict"],
        "seconds": {name: manifest_of(run)["seconds"] for name, run in runs.items()},
    }
    return Finding(is_same and comparison["verdict"] == "identical", found)


@check
def audit_strict(lab: Lab) -> Finding:
    """No operation of mode strict gives different bits from equal inputs."""
    audit = lab.audit("strict")
    return Finding(not audit["ops"], audit)


@check
def audit_fast(lab: Lab) -> Finding:
    """Which operations of mode fast give different bits from equal inputs."""
    return Finding(None, lab.audit("fast"))


@check
def fast_repeats(lab: Lab) -> Finding:
    """How far two trainings go apart where nothing is fixed."""
    run = lab.train("fast")
    comparison = lab.compare(run["key"], run["key"])
    differences = {"verdict": comparison["verdict"], "differs": comparison["differs"]}
    return Finding(None, {"train": run, "compare": differences})


@check
def warnings(lab: Lab) -> Finding:
    """What PyTorch warns of; stored with the run."""
    run = lab.train("warn", "--repeats", 1)
    return Finding(None, manifest_of(run)["warnings"])


@check
def segment(lab: Lab) -> Finding:
    """The masks of repeated strict segmentations are the same."""
    options = ["--model", lab.encoder, "--profile", lab.profile, "--store", lab.store]
    run = lab.call("segment", lab.data, *options)
    return Finding(run["verdict"] in ("identical", "vacuous"), run)


@check
def beside_the_cpu(lab: Lab) -> Finding:
    """Where the device diverges from the processor: round-off, never a fault."""
    on_device = lab.trained()["key"]
    on_cpu = lab.on_cpu.trained()["key"]
    divergence = lab.diverge(f"{on_device}/0", f"{on_cpu}/0")
    return Finding(divergence["judgement"] != "fault", divergence)


@check
def segmented_beside_the_cpu(lab: Lab) -> Finding:
    """Where masks part from the processor's, with TF32 and without: round-off, never a fault."""
    model = f"{lab.trained()['key']}/0"
    labs = {"tf32": lab.with_setting("tf32", "tf32: true")}
    if lab.profile != "cpu":
        labs[lab.profile] = lab
    on_cpu = lab.on_cpu.segment_once(model)
    divergences = {
        name: lab.diverge(other.segment_once(model), on_cpu) for name, other in labs.items()
    }
    judgements = {divergence["judgement"] for divergence in divergences.values()}
    return Finding("fault" not in judgements, divergences)


@check
def batches(lab: Lab) -> Finding:
    """In mode strict masks do not depend on the batch; which operations do in mode fast."""
    model = f"{lab.trained()['key']}/0"
    alone, together = (lab.segment_once(model, "--batch-size", size) for size in (1, 16))
    comparison = lab.compare(alone, together)
    options = ["--model", model, "--profile", lab.profile, "--store", lab.store]
    audit = lab.call("audit", lab.data, "--task", "segment", *options)
    holds = comparison["verdict"] in ("identical", "vacuous")
    return Finding(holds, {"strict": comparison, "fast": audit})


@check
def weight_files(lab: Lab) -> Finding:
    """A network saved on the GPU and on the processor: a comparison names the device alone."""
    (weights,) = Path(lab.trained()["folder"]).glob("*/0/weights.safetensors")
    is_cuda = lab.device == "cuda"
    on_cpu = lab.folder / "on-cpu.pth"
    on_cuda = lab.folder / "on-cuda.pth"
    code = (
        "import sys, torch; from safetensors.torch import load_file\n"
        "torch.save(load_file(sys.argv[1], device=sys.argv[3]), sys.argv[2])"
    )
    run_python(code, weights, on_cpu, "cpu")
    run_python(code, weights, on_cuda, "cuda" if is_cuda else "cpu")
    comparison = lab.call("compare", on_cpu, on_cuda)
    differing = comparison["weights"]["files"]["differing"]
    reasons = {part["part"]: part["why"] for part in differing}
    names_device = not is_cuda or "cuda" in reasons.get("data.pkl", "")
    is_same_network = comparison["verdict"] == "identical" and "tensors" not in reasons
    return Finding(names_device and is_same_network, comparison["weights"])


@check
def switches(lab: Lab) -> Finding:
    """A switch that a profile sets holds in the run; which of them give different bits."""
    found = {}
    for name in SWITCHES:
        other = lab.with_setting(name, f"switches: {{{name}: true}}")
        run = other.train("fast", "--repeats", 1)
        found[name] = {
            "read back": manifest_of(run)["switches"][name],
            "weights": weights_of(run),
        }
    return Finding(all(switch["read back"] for switch in found.values()), found)


@check
def cost(lab: Lab) -> Finding:
    """What determinism costs a step."""
    path = lab.folder / "cost.json"
    run_python(
        "import json, sys; from dataclasses import asdict; from pathlib import Path\n"
        "from cellrepro.audits.cost import measure_cost\n"
        "cost = measure_cost(encoder=sys.argv[2], profile=sys.argv[3], rounds=5, quiet=True)\n"
        "Path(sys.argv[1]).write_text(json.dumps(asdict(cost), default=str))",
        path,
        lab.encoder,
        lab.profile,
    )
    return Finding(None, json.loads(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
