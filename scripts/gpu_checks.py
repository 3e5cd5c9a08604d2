"""What the lab claims, checked on one device with the lab's own commands.

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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src"
COMMAND = [sys.executable, "-c", "from cellrepro.cli import main; main()"]
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")])),
}
SWITCHES = ("cudnn_benchmark", "cudnn_deterministic", "cuda_matmul_allow_tf32")

Document = Any
"""JSON, as a command printed it."""


def main() -> int:
    """Make the checks, write what each found, and say whether every claim holds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="cuda")
    parser.add_argument("--encoder", choices=("tiny", "vit-l"), default="tiny")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path("gpu_checks.json"))
    parser.add_argument("--minutes", type=float, default=9.0, help="no check begins beyond these")
    parser.add_argument("--only", nargs="+", choices=list(CHECKS), metavar="CHECK")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    outcomes: dict[str, Document] = {}
    report = {"profile": arguments.profile, "encoder": arguments.encoder, "checks": outcomes}
    with tempfile.TemporaryDirectory() as scratch:
        lab = Lab(Path(scratch), arguments.profile, arguments.encoder, arguments.epochs)
        for name in arguments.only or CHECKS:
            started = time.monotonic()
            if started < end:
                outcome = outcome_of(CHECKS[name], lab)
            else:
                outcome = {"status": "skipped", "why": "the time is over"}
            outcome["seconds"] = round(time.monotonic() - started, 1)
            outcomes[name] = outcome
            arguments.out.write_text(json.dumps(report, indent=1, default=str), encoding="utf-8")
            print(f"{name:14} {outcome['status']:8} {outcome['seconds']:6.1f} s", flush=True)
    statuses = {outcome["status"] for outcome in outcomes.values()}
    return 0 if "passed" in statuses and not {"failed", "error"} & statuses else 1


# -- the lab, by its commands --------------------------------------------------------------


@dataclass(frozen=True)
class Lab:
    """A folder of images, a starting network and a store, on one profile.

    Attributes
    ----------
    folder : Path
        Holds the images, the store and what the checks write.
    profile : str
        A name, or a file.
    encoder : str
    epochs : int
    """

    folder: Path
    profile: str
    encoder: str
    epochs: int

    @property
    def store(self) -> Path:
        """Of all runs."""
        return self.folder / "store"

    @property
    def device(self) -> str:
        """What a profile of this package computes on, as its name begins: ``cpu``, ``cuda``."""
        return self.profile.partition("-")[0]

    @property
    def data(self) -> Path:
        """Four training and two test images, made when first asked for."""
        data = self.folder / "synthetic"
        if not data.exists():
            run_python(
                "import sys; from pathlib import Path\n"
                "from cellrepro.images.synthetic_sets import write_folder\n"
                "write_folder(Path(sys.argv[1]), n_train=4, n_test=2)",
                data,
            )
        return data

    def call(self, verb: str, *words: object) -> Document:
        """Get what a command prints as JSON.

        Raises
        ------
        RuntimeError
            If it ends with another exit code than 0 and 1.
        """
        command = [*COMMAND, verb, *map(str, words), "--json"]
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

    def write_profile(self, name: str, setting: str) -> Path:
        """Write a profile of the same device with one more line."""
        path = self.folder / f"{name}.yaml"
        path.write_text(f"device: {self.device}\nthreads: 2\n{setting}\n", encoding="utf-8")
        return path


def run_python(code: str, *words: object) -> None:
    """Run some lines in a process of their own; the words are their ``sys.argv``."""
    command = [sys.executable, "-c", code, *map(str, words)]
    subprocess.run(command, check=True, env=ENVIRONMENT)


def manifest_of(run: Document) -> Document:
    """Read the manifest of the only repeat of a run."""
    (path,) = Path(run["folder"]).glob("*/0/manifest.json")
    return json.loads(path.read_text(encoding="utf-8"))


# -- checks --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes
    ----------
    holds : bool or None
        Whether the claim holds; None where nothing is claimed.
    document : Document
        What was measured.
    """

    holds: bool | None
    document: Document


Check = Callable[[Lab], Finding]


def outcome_of(check: Check, lab: Lab) -> dict[str, Document]:
    """Make a check: its ``status``, and what it ``found`` or ``why`` it broke off."""
    try:
        finding = check(lab)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        return {"status": "error", "why": f"{type(error).__name__}: {error}"[-2000:]}
    status = {True: "passed", False: "failed", None: "seen"}[finding.holds]
    return {"status": status, "found": finding.document}


def environment(lab: Lab) -> Finding:
    """What this is measured on."""
    return Finding(None, lab.call("doctor", "--profile", lab.profile))


def strict_repeats(lab: Lab) -> Finding:
    """Two strict trainings, in processes of their own, end in the same bits."""
    run = lab.train("strict")
    weights = {repeat["weights"] for repeat in run["repeats"]}
    return Finding(len(weights) == 1, run)


def fast_repeats(lab: Lab) -> Finding:
    """How far two trainings go apart where nothing is fixed."""
    run = lab.train("fast")
    comparison = lab.call("compare", run["key"], run["key"], "--store", lab.store)
    differences = {"verdict": comparison["verdict"], "differs": comparison["differs"]}
    return Finding(None, {"train": run, "compare": differences})


def torch_warnings(lab: Lab) -> Finding:
    """What PyTorch warns of; stored with the run."""
    run = lab.train("warn", "--repeats", 1)
    return Finding(None, manifest_of(run)["warnings"])


def audit_strict(lab: Lab) -> Finding:
    """No operation of mode strict gives different bits from equal inputs."""
    audit = audit_of(lab, "strict")
    return Finding(not audit["ops"], audit)


def audit_fast(lab: Lab) -> Finding:
    """Which operations of mode fast give different bits from equal inputs."""
    return Finding(None, audit_of(lab, "fast"))


def audit_of(lab: Lab, mode: str) -> Document:
    """Execute the operations of one step four times again."""
    options = ["--model", lab.encoder, "--profile", lab.profile, "--mode", mode]
    return lab.call("audit", lab.data, *options, "--steps", 1, "--replays", 4)


def segment(lab: Lab) -> Finding:
    """The masks of repeated strict segmentations are the same."""
    options = ["--model", lab.encoder, "--profile", lab.profile, "--store", lab.store]
    run = lab.call("segment", lab.data, *options)
    return Finding(run["verdict"] in ("identical", "vacuous"), run)


def beside_the_cpu(lab: Lab) -> Finding:
    """Where the device diverges from the processor: round-off, never a fault."""
    on_device = lab.trained()["key"]
    on_cpu = replace(lab, profile="cpu").trained()["key"]
    divergence = lab.call("diverge", f"{on_device}/0", f"{on_cpu}/0", "--store", lab.store)
    return Finding(divergence["judgement"] != "fault", divergence)


def segmented_beside_the_cpu(lab: Lab) -> Finding:
    """Where masks part from the processor's, with TF32 and without: round-off, never a fault."""
    model = f"{lab.trained()['key']}/0"

    def segmented(profile: str | Path) -> str:
        options = ["--model", model, "--profile", profile, "--repeats", 1, "--store", lab.store]
        return f"{lab.call('segment', lab.data, *options)['key']}/0"

    on_cpu = segmented("cpu")
    profiles = {"tf32": lab.write_profile("tf32", "tf32: true")}
    divergences = {}
    if lab.profile != "cpu":
        profiles = {lab.profile: lab.profile, **profiles}
    for name, profile in profiles.items():
        on_device = segmented(profile)
        divergences[name] = lab.call("diverge", on_device, on_cpu, "--store", lab.store)
    judgements = {divergence["judgement"] for divergence in divergences.values()}
    return Finding("fault" not in judgements, divergences)


def batches(lab: Lab) -> Finding:
    """In mode strict masks do not depend on the batch; which operations do in mode fast."""
    options = ["--model", f"{lab.trained()['key']}/0", "--store", lab.store]
    options += ["--profile", lab.profile]

    def segmented(batch_size: int) -> str:
        words = [*options, "--repeats", 1, "--batch-size", batch_size]
        return f"{lab.call('segment', lab.data, *words)['key']}/0"

    comparison = lab.call("compare", segmented(1), segmented(16), "--store", lab.store)
    audit = lab.call("audit", lab.data, "--task", "segment", *options)
    holds = comparison["verdict"] in ("identical", "vacuous")
    return Finding(holds, {"strict": comparison, "fast": audit})


def weight_files(lab: Lab) -> Finding:
    """Of two files that torch.save wrote, of a network on the GPU and of the same on the processor,
    a comparison names the device and nothing else."""
    (weights,) = Path(lab.trained()["folder"]).glob("*/0/weights.safetensors")
    is_cuda = lab.device == "cuda"
    paths = {"cpu": lab.folder / "on-cpu.pth", "cuda": lab.folder / "on-cuda.pth"}
    code = (
        "import sys, torch; from safetensors.torch import load_file\n"
        "torch.save(load_file(sys.argv[1], device=sys.argv[3]), sys.argv[2])"
    )
    for device, path in paths.items():
        run_python(code, weights, path, device if is_cuda else "cpu")
    comparison = lab.call("compare", *paths.values())
    differing = comparison["weights"]["files"]["differing"]
    reasons = {part["part"]: part["why"] for part in differing}
    names_device = not is_cuda or "cuda" in reasons.get("data.pkl", "")
    is_same_network = comparison["verdict"] == "identical" and "tensors" not in reasons
    return Finding(names_device and is_same_network, comparison["weights"])


def portable_witness(lab: Lab) -> Finding:
    """In mode portable the device computes the reference bits, stage by stage."""
    found = lab.call("doctor", "--portable", "--profile", lab.profile)
    return Finding(found["ok"], found)


def portable_beside_the_cpu(lab: Lab) -> Finding:
    """A training and its masks in mode portable are those of the processor; what that costs."""
    options = ("--repeats", 1)
    here = lab.train("portable", *options)
    on_processor = replace(lab, profile="cpu").train("portable", *options)
    runs = {"here": here, "on the processor": on_processor, "strict": lab.trained()}
    weights = {name: run["repeats"][0]["weights"] for name, run in runs.items()}
    comparison = lab.call("compare", here["key"], on_processor["key"], "--store", lab.store)
    seconds = {name: manifest_of(run)["seconds"] for name, run in runs.items()}
    is_same = weights["here"] == weights["on the processor"]
    found = {"weights": weights, "verdict": comparison["verdict"], "seconds": seconds}
    return Finding(is_same and comparison["verdict"] == "identical", found)


def switches(lab: Lab) -> Finding:
    """A switch that a profile sets holds in the run; which of them give different bits."""
    runs = {}
    for name in SWITCHES:
        profile = lab.write_profile(name, f"switches: {{{name}: true}}")
        run = replace(lab, profile=str(profile)).train("fast", "--repeats", 1)
        is_set = manifest_of(run)["switches"][name]
        runs[name] = {"read back": is_set, "weights": run["repeats"][0]["weights"]}
    return Finding(all(run["read back"] for run in runs.values()), runs)


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


CHECKS: dict[str, Check] = {
    "environment": environment,
    "strict-repeats": strict_repeats,
    "portable-witness": portable_witness,
    "portable-beside-the-cpu": portable_beside_the_cpu,
    "audit-strict": audit_strict,
    "audit-fast": audit_fast,
    "fast-repeats": fast_repeats,
    "warnings": torch_warnings,
    "segment": segment,
    "beside-the-cpu": beside_the_cpu,
    "segmented-beside-the-cpu": segmented_beside_the_cpu,
    "batches": batches,
    "weight-files": weight_files,
    "switches": switches,
    "cost": cost,
}


if __name__ == "__main__":
    sys.exit(main())
