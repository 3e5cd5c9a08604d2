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


def main() -> int:
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
    found: dict[str, Any] = {"profile": arguments.profile, "encoder": arguments.encoder}
    found["checks"] = {}
    with tempfile.TemporaryDirectory() as scratch:
        lab = Lab(Path(scratch), arguments.profile, arguments.encoder, arguments.epochs)
        for name in arguments.only or CHECKS:
            started = time.monotonic()
            outcome = {"status": "skipped", "why": "the time is over"}
            if started < end:
                outcome = _outcome(CHECKS[name], lab)
            outcome["seconds"] = round(time.monotonic() - started, 1)
            found["checks"][name] = outcome
            arguments.out.write_text(json.dumps(found, indent=1, default=str), encoding="utf-8")
            print(f"{name:14} {outcome['status']:8} {outcome['seconds']:6.1f} s", flush=True)
    statuses = [outcome["status"] for outcome in found["checks"].values()]
    return 0 if "passed" in statuses and not {"failed", "error"} & set(statuses) else 1


def _outcome(check: Check, lab: Lab) -> dict[str, Any]:
    try:
        holds, document = check(lab)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        return {"status": "error", "why": f"{type(error).__name__}: {error}"[-2000:]}
    status = {True: "passed", False: "failed", None: "seen"}[holds]
    return {"status": status, "found": document}


@dataclass
class Lab:
    """A folder of images, a starting network and a store, on one profile."""

    folder: Path
    profile: str
    encoder: str
    epochs: int

    @property
    def data(self) -> Path:
        """Four training and two test images, made when first asked for."""
        data = self.folder / "synthetic"
        if not data.exists():
            _python(
                "import sys; from pathlib import Path\n"
                "from cellrepro.images.synthetic_sets import write_folder\n"
                "write_folder(Path(sys.argv[1]), n_train=4, n_test=2)",
                data,
            )
        return data

    def call(self, verb: str, *words: object, expected: tuple[int, ...] = (0, 1)) -> Any:
        """What a command prints as JSON; an error for another exit code than expected."""
        command = [*COMMAND, verb, *map(str, words), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
        if done.returncode not in expected:
            raise RuntimeError(f"{verb} ended with {done.returncode}: {done.stderr[-1500:]}")
        return json.loads(done.stdout)

    def train(self, mode: str, *words: object) -> Any:
        """Two repeats of one training."""
        options = ["--model", self.encoder, "--profile", self.profile, "--mode", mode]
        options += ["--epochs", self.epochs, "--images-per-epoch", 4, "--store", self.folder / "s"]
        return self.call("train", self.data, *options, *words)


def _python(code: str, *words: object) -> None:
    command = [sys.executable, "-c", code, *map(str, words)]
    subprocess.run(command, check=True, env=ENVIRONMENT)


Answer = tuple[bool | None, Any]
"""Whether the claim holds, none where there is no claim, and what was found."""
Check = Callable[[Lab], Answer]


def environment(lab: Lab) -> Answer:
    """What this is measured on."""
    return None, lab.call("doctor", "--profile", lab.profile)


def strict_repeats(lab: Lab) -> Answer:
    """Two strict trainings, in processes of their own, end in the same bits."""
    found = lab.train("strict")
    return len({repeat["weights"] for repeat in found["repeats"]}) == 1, found


def fast_repeats(lab: Lab) -> Answer:
    """How far two trainings go apart where nothing is fixed."""
    found = lab.train("fast")
    pair = lab.call("compare", found["key"], found["key"], "--store", lab.folder / "s")
    return None, {"train": found, "compare": {k: pair[k] for k in ("verdict", "differs")}}


def warned(lab: Lab) -> Answer:
    """What PyTorch warns of; stored with the run."""
    found = lab.train("warn", "--repeats", 1)
    (file,) = Path(found["folder"]).glob("*/0/manifest.json")
    return None, json.loads(file.read_text())["warnings"]


def audit(mode: str) -> Check:
    def check(lab: Lab) -> Answer:
        """Which operations give other bits from equal inputs; in mode strict none may."""
        options = ["--model", lab.encoder, "--profile", lab.profile, "--mode", mode]
        found = lab.call("audit", lab.data, *options, "--steps", 1, "--replays", 4)
        return (not found["ops"] if mode == "strict" else None), found

    return check


def segment(lab: Lab) -> Answer:
    """The masks of three strict segmentations are the same."""
    options = ["--model", lab.encoder, "--profile", lab.profile, "--store", lab.folder / "s"]
    found = lab.call("segment", lab.data, *options)
    return found["verdict"] in ("identical", "vacuous"), found


def beside_the_cpu(lab: Lab) -> Answer:
    """Where the device diverges from the processor: round-off, never a fault."""
    here = lab.train("strict", "--repeats", 1)["key"]
    there = Lab(lab.folder, "cpu", lab.encoder, lab.epochs).train("strict", "--repeats", 1)["key"]
    found = lab.call("diverge", f"{here}/0", f"{there}/0", "--store", lab.folder / "s")
    return found["judgement"] != "fault", found


def segmented_beside_the_cpu(lab: Lab) -> Answer:
    """Where masks part from the processor's, with TF32 and without: round-off, never a fault."""
    store = ["--store", lab.folder / "s"]
    model = f"{lab.train('strict', '--repeats', 1)['key']}/0"
    tf32 = lab.folder / "tf32.yaml"
    tf32.write_text(f"device: {lab.profile.partition('-')[0]}\nthreads: 2\ntf32: true\n")
    keys = {}
    for name in ("cpu", lab.profile, tf32):
        options = ["--model", model, "--profile", name, "--repeats", 1, *store]
        keys[Path(name).stem] = lab.call("segment", lab.data, *options)["key"] + "/0"
    there = keys.pop("cpu", None)
    found = {name: lab.call("diverge", key, there, *store) for name, key in keys.items()}
    return all(one["judgement"] != "fault" for one in found.values()), found


def batches(lab: Lab) -> Answer:
    """In mode strict masks do not depend on the batch; which operations do in mode fast."""
    store = ["--store", lab.folder / "s", "--profile", lab.profile]
    model = ["--model", f"{lab.train('strict', '--repeats', 1)['key']}/0"]
    once = [*model, "--repeats", 1, *store]
    one, many = (
        lab.call("segment", lab.data, *once, "--batch-size", n)["key"] + "/0" for n in (1, 16)
    )
    pair = lab.call("compare", one, many, "--store", lab.folder / "s")
    audited = lab.call("audit", lab.data, "--task", "segment", *model, *store)
    return pair["verdict"] in ("identical", "vacuous"), {"strict": pair, "fast": audited}


def weight_files(lab: Lab) -> Answer:
    """A file that torch.save wrote of a network on the GPU says so, and only so, beside another."""
    folder = Path(lab.train("strict", "--repeats", 1)["folder"])
    (weights,) = folder.glob("*/0/weights.safetensors")
    places = {"cpu": lab.folder / "on-cpu.pth", "cuda": lab.folder / "on-cuda.pth"}
    for device, file in places.items():
        code = "import sys, torch; from safetensors.torch import load_file\n"
        code += "torch.save(load_file(sys.argv[1], device=sys.argv[3]), sys.argv[2])"
        _python(code, weights, file, device if lab.profile.startswith("cuda") else "cpu")
    found = lab.call("compare", *places.values())
    told = {part["part"]: part["why"] for part in found["weights"]["files"]["differing"]}
    named = "cuda" in told.get("data.pkl", "") or not lab.profile.startswith("cuda")
    return named and found["verdict"] == "identical" and "tensors" not in told, found["weights"]


def switches(lab: Lab) -> Answer:
    """A switch that a profile sets holds in the run; which of them give other bits."""
    device, found = lab.profile.partition("-")[0], {}
    for name in ("cudnn_benchmark", "cudnn_deterministic", "cuda_matmul_allow_tf32"):
        file = lab.folder / f"{name}.yaml"
        file.write_text(f"device: {device}\nthreads: 2\nswitches: {{{name}: true}}\n")
        run = replace(lab, profile=str(file)).train("fast", "--repeats", 1)
        (manifest,) = Path(run["folder"]).glob("*/0/manifest.json")
        read = json.loads(manifest.read_text())["switches"][name]
        found[name] = {"read back": read, "weights": run["repeats"][0]["weights"]}
    return all(one["read back"] for one in found.values()), found


def cost(lab: Lab) -> Answer:
    """What determinism costs a step."""
    file = lab.folder / "cost.json"
    _python(
        "import json, sys; from dataclasses import asdict; from pathlib import Path\n"
        "from cellrepro.audits.cost import measure_cost\n"
        "found = measure_cost(encoder=sys.argv[2], profile=sys.argv[3], rounds=5, quiet=True)\n"
        "Path(sys.argv[1]).write_text(json.dumps(asdict(found), default=str))",
        file,
        lab.encoder,
        lab.profile,
    )
    return None, json.loads(file.read_text())


CHECKS: dict[str, Check] = {
    "environment": environment,
    "strict-repeats": strict_repeats,
    "audit-strict": audit("strict"),
    "audit-fast": audit("fast"),
    "fast-repeats": fast_repeats,
    "warnings": warned,
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
