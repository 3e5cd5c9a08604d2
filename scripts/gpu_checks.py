"""Checks of this lab's claims on one device: what warns, what flips, what repeats, what it costs.

    python scripts/gpu_checks.py --device cuda --out gpu_checks.json

Cellpose's own network in SAM's ViT-L size with weights drawn from a seed, and synthetic images:
nothing is downloaded. Needs torch, cellpose and this package's ``src``, installed or not; the
checks `warnings`, `audit-fast`, `audit-strict` and `segmentation` also need pydantic and pyyaml,
and are skipped without them. Results are written after every check, so that a run that is cut
short keeps what it has. ``--device cpu --encoder tiny`` makes the same checks on a laptop.

Exit code 0: every claim that was checked holds; 1: one does not, a check broke off, or no claim was
checked; 2: wrong usage; 3: there is no such device.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import os
import platform
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
LEARNING_RATE = 1e-4  # ten times Cellpose's, so that fifty steps from noise move every weight


# -- the command ---------------------------------------------------------------------------


def main() -> int:
    arguments = parse(sys.argv[1:])
    start_with_variables(arguments.threads)
    if str(SOURCE) not in sys.path:
        sys.path.insert(0, str(SOURCE))
    import torch

    device = arguments.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        print(
            f"--device cuda: PyTorch {torch.__version__} finds no CUDA device here; take "
            "--device cpu --encoder tiny",
            file=sys.stderr,
        )
        return 3
    if device == "cuda":
        torch.cuda.init()  # so that its memory can be asked for
    lab = Lab(
        device=device,
        encoder=arguments.encoder or ("vit-l" if device == "cuda" else "tiny"),
        steps=arguments.steps,
        rounds=arguments.rounds,
        cost_steps=arguments.cost_steps,
        replays=arguments.replays,
        seed=arguments.seed,
        threads=arguments.threads,
        deadline=time.monotonic() + 60 * arguments.minutes,
    )
    if arguments.digest_only:
        print(json.dumps(training_digest(lab)))
        return 0
    return carry_out(lab, arguments.only or list(CHECKS), arguments.out)


def parse(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--encoder", choices=("tiny", "vit-b", "vit-l"))
    parser.add_argument("--out", type=Path, default=Path("gpu_checks.json"))
    parser.add_argument("--minutes", type=float, default=9.0, help="no check begins beyond these")
    parser.add_argument("--steps", type=int, default=50, help="of each training that is repeated")
    parser.add_argument("--rounds", type=int, default=5, help="of the cost")
    parser.add_argument("--cost-steps", type=int, default=8, help="timed in each round")
    parser.add_argument("--replays", type=int, default=4, help="of each operation in the audits")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=usable_cores(), help="of the CPU")
    parser.add_argument("--only", nargs="+", choices=list(CHECKS), metavar="CHECK")
    parser.add_argument("--digest-only", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    for name in ("steps", "rounds", "cost_steps", "replays", "threads"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name.replace('_', '-')} is {getattr(arguments, name)}; expected 1 up")
    return arguments


def usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def start_with_variables(threads: int) -> None:
    """Start this script again with what libraries read only once, when they are loaded."""
    wanted = {
        "PYTHONHASHSEED": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "GOMP_SPINCOUNT": "1000",
        **dict.fromkeys(THREADS, str(threads)),
    }
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


# -- carrying checks out, one after the other ----------------------------------------------


GOOD = ("passed", "seen", "skipped")


class Skipped(Exception):
    """A check that cannot be made here, with the reason."""


def carry_out(lab: Lab, names: list[str], out: Path) -> int:
    """Run the checks in the order of `CHECKS` and write the results after each."""
    results: dict[str, Any] = {
        "script": "gpu_checks",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "settings": {
            setting.name: getattr(lab, setting.name) for setting in fields(lab) if setting.repr
        },
        "checks": {},
        "ok": False,
        "complete": False,
    }
    started = time.monotonic()
    for name, check in CHECKS.items():
        if name not in names:
            continue
        results["checks"][name] = outcome = one_check(lab, name, check)
        statuses = {found["status"] for found in results["checks"].values()}
        results["ok"] = statuses <= set(GOOD) and "passed" in statuses
        results["seconds"] = round(time.monotonic() - started, 1)
        results["complete"] = list(results["checks"]) == [n for n in CHECKS if n in names]
        write(out, results)
        line = outcome.get("sentence") or outcome.get("reason") or ""
        print(f"{name:16} {outcome['status']:8} {outcome['seconds']:6.1f} s  {line}", flush=True)
    return 0 if results["ok"] else 1


def one_check(lab: Lab, name: str, check: Check) -> dict[str, Any]:
    """The outcome of one check: ``passed``, ``failed``, ``seen``, ``skipped`` or ``error``.

    ``seen`` is what has no right or wrong, for example which operations flip in mode fast.
    """
    started = time.monotonic()
    left = lab.deadline - started
    needed = check.seconds(lab)
    outcome: dict[str, Any]
    if left < needed:
        outcome = {
            "status": "skipped",
            "reason": f"{max(left, 0):.0f} s of the time are left, and it takes about {needed:.0f}",
        }
    else:
        lab.forget_peak()
        try:
            outcome = check.run(lab)
        except Skipped as reason:
            outcome = {"status": "skipped", "reason": str(reason)}
        except Exception as error:
            outcome = {
                "status": "error",
                "reason": f"{type(error).__name__}: {error}"[:2000],
                "traceback": traceback.format_exc().splitlines()[-12:],
            }
        outcome["peak_bytes"] = lab.peak()
    lab.rest()
    return {**outcome, "seconds": round(time.monotonic() - started, 2)}


def write(path: Path, results: dict[str, Any]) -> None:
    """Replace the file whole: a run that is cut leaves the last good one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(path.name + ".part")
    staged.write_text(json.dumps(plain(results), indent=1, allow_nan=False), encoding="utf-8")
    staged.replace(path)


def plain(value: Any) -> Any:
    """For JSON, which has no number for infinity and NaN."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


# -- what the checks work with -------------------------------------------------------------


@dataclass
class Lab:
    """The device, the network and the images, made when first asked for."""

    device: str
    encoder: str
    steps: int
    rounds: int
    cost_steps: int
    replays: int
    seed: int
    threads: int
    deadline: float = field(repr=False)
    _network: Any = field(default=None, repr=False)
    _start: dict[str, Any] = field(default_factory=dict, repr=False)
    _images: Any = field(default=None, repr=False)
    step_seconds: float = field(default=0.0, repr=False)

    @property
    def network(self) -> Any:
        """The network, on the device."""
        if self._network is None:
            from cellrepro.model.network import import_cellpose, seeded_network

            import_cellpose()
            self._network = seeded_network(self.encoder, seed=self.seed, device=self.device)
            self._start = {n: t.detach().clone() for n, t in self._network.state_dict().items()}
        return self._network

    @property
    def images(self) -> list[Any]:
        """Two synthetic images with their flows."""
        if self._images is None:
            import numpy as np
            import torch

            from cellrepro.images.folder import LabelledImage
            from cellrepro.images.synthetic import nuclei
            from cellrepro.model.step_timing import with_flows

            drawn = [nuclei(self.seed + i) for i in range(2)]
            # On the CPU, so that flows are the same whatever is checked.
            self._images = with_flows(
                [
                    LabelledImage(f"synth_{i}", d.image, d.masks.astype(np.int32), Path(), None)
                    for i, d in enumerate(drawn)
                ],
                torch.device("cpu"),
            )
        return self._images

    def loop(self, steps: int) -> Any:
        """A training of these steps from the start: same weights, same generators, same batches.

        Cellpose's first epoch has learning rate 0; it is a fifth of the steps.
        """
        from cellrepro.determinism.seeding import seed_everything
        from cellrepro.model.training import Loop

        network = self.network
        network.load_state_dict(self._start)
        for parameter in network.parameters():
            parameter.grad = None
        seed_everything(self.seed)
        return Loop(
            network,
            self.images,
            (),
            n_epochs=11,
            learning_rate=LEARNING_RATE,
            images_per_epoch=max(1, -(-steps // 5)),
        )

    def warmed_up(self) -> Any:
        """A loop past its first steps, in which memory and kernels are set up; times the last."""
        loop = self.loop(1)
        for _ in range(3):
            started = time.perf_counter()
            loop.step()
            self.step_seconds = time.perf_counter() - started
        return loop

    def mode(self, name: str) -> contextlib.AbstractContextManager[Any]:
        """A mode of the lab, as its profile for this device has it: no TF32."""
        from cellrepro.determinism.modes import mode_in_force
        from cellrepro.model.network import import_cellpose

        import_cellpose()  # it allows TF32, so never inside a mode
        return mode_in_force(name, tf32=False, device=self.device)

    def forget_peak(self) -> None:
        import torch

        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def peak(self) -> int | None:
        """Most bytes of the device held by tensors since `forget_peak`; of the process on a CPU."""
        import torch

        if self.device == "cuda":
            return int(torch.cuda.max_memory_allocated())
        try:
            import resource
        except ImportError:
            return None
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

    def rest(self) -> None:
        """Give memory back, gradients too."""
        import gc

        import torch

        if self._network is not None:
            for parameter in self._network.parameters():
                parameter.grad = None
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()


def digest_of(tensors: dict[str, Any]) -> str:
    """SHA-256 of names, dtypes, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        flat = tensor.detach().to("cpu").contiguous()
        digest.update(f"{name} {flat.dtype} {tuple(flat.shape)}\n".encode())
        digest.update(flat.numpy().tobytes())
    return digest.hexdigest()


def needs(*modules: str) -> None:
    import importlib.util

    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise Skipped(f"{' and '.join(missing)} is not installed here, which this check needs")


# -- the checks ----------------------------------------------------------------------------


def environment(lab: Lab) -> dict[str, Any]:
    """What this was measured on."""
    import numpy as np
    import torch

    from cellrepro.store.platform import versions

    found: dict[str, Any] = {
        "status": "seen",
        "versions": versions(),
        "torch": {
            "version": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            "threads": torch.get_num_threads(),
        },
        "numpy": np.__version__,
        "system": platform.platform(terse=True),
        "processor": processor(),
        "variables": {
            name: os.environ.get(name)
            for name in ("PYTHONHASHSEED", "CUBLAS_WORKSPACE_CONFIG", "GOMP_SPINCOUNT", *THREADS)
        },
    }
    if lab.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        found["gpu"] = {
            "name": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "multiprocessors": properties.multi_processor_count,
            "memory": properties.total_memory,
        }
    found["sentence"] = found["gpu"]["name"] if "gpu" in found else found["processor"]
    return found


def processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def numeric(lab: Lab) -> dict[str, Any]:
    """The numeric classes of CPU and device, named twice."""
    from cellrepro.store.platform import numeric_class

    first = {name: numeric_class(name) for name in dict.fromkeys(("cpu", lab.device))}
    started = time.perf_counter()
    again = numeric_class(lab.device)
    seconds = time.perf_counter() - started
    same = bool(again.probes) and again.probes == first[lab.device].probes
    return {
        "status": "passed" if same else "failed",
        "sentence": ", ".join(f"{name}: {found.name}" for name, found in first.items())
        + ("" if same else "; asked again, the device is of another class"),
        "classes": {name: found.name for name, found in first.items()},
        "probes": {name: dict(found.probes) for name, found in first.items()},
        "seconds_again": seconds,
    }


def strict_quiet(lab: Lab) -> dict[str, Any]:
    """Strict raises nothing and warns of nothing."""
    from cellrepro.determinism.known_operations import alert_in

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with lab.mode("strict") as switches:
            lab.warmed_up()
            losses = [lab.loop(1).step()]
    about = sorted({text for w in caught if alert_in(text := str(w.message)) is not None})
    return {
        "status": "failed" if about else "passed",
        "sentence": f"strict warns: {about[0][:200]}"
        if about
        else f"strict steps raise nothing and warn of nothing; one takes {lab.step_seconds:.3g} s",
        "warnings": about,
        "other_warnings": sorted({str(w.message)[:300] for w in caught} - set(about)),
        "switches": dict(switches),
        "step_seconds": lab.step_seconds,
        "losses": losses,
    }


def what_warns(lab: Lab) -> dict[str, Any]:
    """Which operations PyTorch warns of in mode warn, with module, line and phase."""
    needs("pydantic", "yaml")
    from cellrepro.trace.torch_warnings import determinism_warnings

    with lab.mode("warn"):
        loop = lab.warmed_up()
    found = determinism_warnings(loop.step, model=lab.network)
    names = sorted({warning.alert for warning in found})
    return {
        "status": "seen",
        "sentence": f"PyTorch warns of {', '.join(names) or 'nothing'}, at {len(found)} places",
        "warnings": [asdict(warning) for warning in found],
    }


def audited(mode: str) -> Callable[[Lab], dict[str, Any]]:
    def check(lab: Lab) -> dict[str, Any]:
        """Which operations give other bits when asked again."""
        needs("pydantic", "yaml")
        from cellrepro.trace.flips import audit

        with lab.mode(mode):
            loop = lab.warmed_up()
            plain = lab.step_seconds
            found = audit(loop.step, steps=1, replays=lab.replays, model=lab.network)
        clean = not found.ops and found.n_replays > 0
        status = "seen" if mode == "fast" else "passed" if clean else "failed"
        return {
            "status": status,
            "sentence": found.sentence(),
            "ops": [asdict(op) for op in found.ops],
            "n_calls": found.n_calls,
            "n_replayed": found.n_replayed,
            "n_replays": found.n_replays,
            "kinds": found.kinds,
            "not_replayed": found.not_replayed,
            "ratio_to_plain_step": found.seconds / plain,
        }

    return check


def training_digest(lab: Lab) -> dict[str, Any]:
    """The weights after a training in mode strict."""
    with lab.mode("strict"):
        loop = lab.loop(lab.steps)
        losses = [loop.step() for _ in range(lab.steps)]
    return {
        "digest": digest_of(lab.network.state_dict()),
        "losses": [loss.hex() for loss in losses],
        "n_changed": n_changed(lab),
    }


def n_changed(lab: Lab) -> int:
    now = lab.network.state_dict()
    return sum(
        int((now[name] != start).sum())
        for name, start in lab._start.items()
        if name != "diam_labels"
    )


def strict_repeats(lab: Lab) -> dict[str, Any]:
    """A training in mode strict gives the same bits again, here and in another process."""
    runs = {"first": training_digest(lab), "again": training_digest(lab)}
    lab.rest()
    left = lab.deadline - time.monotonic()
    command = [
        *(sys.executable, str(Path(__file__).resolve()), "--digest-only"),
        *("--device", lab.device, "--encoder", lab.encoder, "--steps", str(lab.steps)),
        *("--seed", str(lab.seed), "--threads", str(lab.threads)),
    ]
    other = None
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=max(left, 1), check=True
        )
        runs["other process"] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        other = f"the other process did not end within the {left:.0f} s that were left"
    except subprocess.CalledProcessError as error:
        other = f"the other process ended with {error.returncode}: {error.stderr[-1000:]}"
    digests = {name: run["digest"] for name, run in runs.items()}
    changed = runs["first"]["n_changed"]
    same = len(set(digests.values())) == 1 and len({str(r["losses"]) for r in runs.values()}) == 1
    if other is not None:
        sentence = other
    elif changed == 0:
        sentence = "vacuous: the training changed no weight"
    else:
        verb = "ended in the same bits" if same else "DIFFER"
        sentence = (
            f"{len(runs)} trainings of {lab.steps} strict steps {verb}, {changed} weights moved"
        )
    return {
        "status": "passed" if same and changed and other is None else "failed",
        "sentence": sentence,
        "n_steps": lab.steps,
        "n_parameters": sum(p.numel() for p in lab.network.parameters()),
        "n_changed": changed,
        "digests": digests,
        "last_loss": float.fromhex(runs["first"]["losses"][-1]),
    }


def fast_repeats(lab: Lab) -> dict[str, Any]:
    """How far two trainings in mode fast part."""
    runs = []
    with lab.mode("fast"):
        for _ in range(2):
            loop = lab.loop(lab.steps)
            losses = [loop.step() for _ in range(lab.steps)]
            weights = lab.network.state_dict().items()
            runs.append((losses, {n: t.to("cpu", copy=True) for n, t in weights}))
    (losses, a), (others, b) = runs
    differing = {name: int((a[name] != b[name]).sum()) for name in a}
    total = sum(tensor.numel() for tensor in a.values())
    n = sum(differing.values())
    largest = max(float((a[name] - b[name]).abs().max()) for name in a)
    first = next((i for i, (x, y) in enumerate(zip(losses, others, strict=True)) if x != y), None)
    return {
        "status": "seen",
        "sentence": f"two trainings of {lab.steps} fast steps: {n} of {total} weights differ, by "
        f"{largest:.2g} at most; losses {'agree' if first is None else f'part at step {first}'}",
        "n_steps": lab.steps,
        "n_differing": n,
        "n_parameters": total,
        "max_abs": largest,
        "first_differing_loss": first,
    }


def segmentation(lab: Lab) -> dict[str, Any]:
    """Cellpose's eval and its dynamics: do they flip, and do they repeat.

    Weights drawn from a seed find few cells, so the dynamics also run on the images' true flows.
    """
    needs("pydantic", "yaml")
    import numpy as np
    import torch
    from cellpose.dynamics import compute_masks

    from cellrepro.determinism.known_operations import alert_in
    from cellrepro.model.inference import segment
    from cellrepro.trace.flips import audit

    image = lab.images[0]
    flows = np.asarray(image.masks)
    x = torch.from_numpy(image.image.astype(np.float32) / 4096).to(lab.device)
    x = torch.stack([x, x * 0, x * 0])[None, :, :256, :256]
    network = lab.network
    network.load_state_dict(lab._start)
    device = torch.device(lab.device)

    def output() -> Any:
        network.eval()
        with torch.no_grad():
            return {"output": network(x)[0]}

    def masks() -> Any:
        found = next(segment(network, (image,)))
        return {"masks": torch.from_numpy(found.masks.astype(np.int64))}

    def dynamics() -> Any:
        # Cellpose's flows are five times as long as the labels' (its loss, 4.2.1.1).
        found = compute_masks(5.0 * flows[2:4], 12 * flows[1] - 6, device=device)
        return {"masks": torch.from_numpy(np.asarray(found).astype(np.int64))}

    results: dict[str, Any] = {}
    for name, work in (("output", output), ("eval", masks), ("dynamics", dynamics)):
        for mode in ("fast", "strict"):
            try:
                with lab.mode(mode):
                    repeats = [work() for _ in range(2)]
                    found = audit(work, steps=1, replays=lab.replays, model=network)
            except RuntimeError as error:
                if alert_in(str(error)) is None:
                    raise
                results[f"{name}, {mode}"] = {"raises": str(error)[:500]}
                continue
            digests = [digest_of(repeat) for repeat in repeats]
            objects = repeats[0].get("masks")
            results[f"{name}, {mode}"] = {
                "digests": digests,
                "n_digests": len(set(digests)),
                "n_objects": None if objects is None else int(objects.max()),
                "ops": [asdict(op) for op in found.ops],
                "audit": found.sentence(),
            }
    strict = {name: found for name, found in results.items() if name.endswith("strict")}
    wrong = [name for name, found in strict.items() if found.get("n_digests") != 1]
    flipping = sorted({op["op"] for found in results.values() for op in found.get("ops", ())})
    return {
        "status": "failed" if wrong else "passed",
        "sentence": (f"not the same again: {'; '.join(wrong)}" if wrong else "strict repeats")
        + f"; dynamics found {results['dynamics, fast'].get('n_objects')} objects; "
        + (f"flips: {', '.join(flipping)}" if flipping else "no operation flips"),
        "results": results,
    }


def cost(lab: Lab) -> dict[str, Any]:
    """What a step takes in every mode, beside plain Cellpose; as many rounds as there is time."""
    import torch

    from cellrepro.lab.cost_of_determinism import Cost, default_variants, summarise
    from cellrepro.model.step_timing import SideBySide

    lab.network.load_state_dict(lab._start)
    variants = default_variants(lab.device)
    bench = SideBySide(
        lab.network, lab.images, steps=lab.cost_steps, variants=variants, seed=lab.seed
    )
    rounds: list[dict[str, list[float]]] = []
    longest = 0.0
    while len(rounds) < lab.rounds and (
        not rounds or lab.deadline - time.monotonic() > 1.2 * longest
    ):
        started = time.monotonic()
        rounds.append(bench.round())
        longest = max(longest, time.monotonic() - started)
    measured = Cost(
        encoder=lab.encoder,
        n_parameters=sum(p.numel() for p in lab.network.parameters()),
        device=lab.device,
        threads=torch.get_num_threads(),
        batch_size=1,
        steps=lab.cost_steps,
        rounds=len(rounds),
        rows=summarise(rounds),
        notes=tuple(bench.notes),
    )
    return {
        "status": "seen",
        "sentence": measured.sentence(),
        **asdict(measured),
        "seconds_of_steps": rounds,
    }


def operations(lab: Lab) -> dict[str, Any]:
    """Every operation of a step, against the same operation on the CPU in float64."""
    replay = make_replay(lab.network, deadline=lab.deadline)
    for mode in ("strict", "fast"):
        with lab.mode(mode):
            loop = lab.warmed_up()
            with replay:
                loop.step()
    rows = replay.rows()
    beyond = [row for row in rows if row["exceeds"]]
    names = ", ".join(dict.fromkeys(row["op"] for row in beyond))
    n = sum(row["n_compared"] for row in rows)
    told = f"beyond their class: {names}" if beyond else "none beyond its class"
    return {
        "status": "failed" if beyond or not n else "passed",
        "sentence": f"{n} calls of {len(rows)} operations compared with float64 on the CPU, {told}",
        "classes": {name: asdict(limit) for name, limit in LIMITS.items()},
        "ops": rows,
        "not_compared": replay.not_compared,
        "cut_short": replay.cut_short,
    }


# -- operation by operation ----------------------------------------------------------------


@dataclass(frozen=True)
class Limit:
    """How far an operation of one class may be from float64 on equal inputs.

    ``ulps``: units in the last place of each element; ``eps``: spacings of 1.0, relative to the
    output's largest element, for sums whose terms cancel. None where there is no limit.
    """

    ulps: float | None
    eps: float | None
    why: str


LIMITS = {
    "exact": Limit(0, 0, "moves, compares or selects"),
    "rounded": Limit(2, None, "one rounding; two where a division is a product with the inverse"),
    "elementary": Limit(None, 32, "a function, or a few roundings, for each element"),
    "interpolated": Limit(None, 1024, "as exact as its positions: their rounding times the slope"),
    "sum": Limit(None, 64, "many terms in an order of the device's choice; TF32 is beyond it"),
}

_CLASSES = {
    "exact": """abs alias arange argmax bitwise_and bitwise_not bitwise_or cat ceil clamp clamp_max
        clamp_min clone constant_pad_nd copysign eq eye fill flip floor full full_like gather ge gt
        index index_select le lift_fresh logical_and logical_not logical_or lt masked_fill max
        maximum min minimum ne neg new_full new_ones new_zeros nonzero ones ones_like relu repeat
        roll round scalar_tensor select_backward select_scatter sign slice_backward slice_scatter
        sort stack threshold trunc unsafe_view where zero zeros zeros_like foreach_copy
        foreach_neg foreach_zero""",
    "rounded": """copy div mul reciprocal sqrt to_copy foreach_div foreach_mul foreach_reciprocal
        foreach_sqrt""",
    "elementary": """add addcdiv addcmul binary_cross_entropy_with_logits cos erf exp gelu
        gelu_backward lerp linspace log log1p mse_loss_backward pow rsqrt rsub sigmoid
        sigmoid_backward sin sub tanh tanh_backward foreach_add foreach_addcdiv foreach_addcmul
        foreach_lerp foreach_pow foreach_sub""",
    "interpolated": """grid_sampler_2d grid_sampler_2d_backward upsample_bilinear2d
        upsample_linear1d upsample_linear1d_backward""",
}
"""Operations by class, in the form of `name_of`; all others are ``sum``."""

_UNINITIALISED = """empty empty_like empty_strided empty_permuted new_empty new_empty_strided"""
_DIGITS = {"float64": 53, "float32": 24, "bfloat16": 8, "float16": 11}
_SMALLEST = {"float64": -1022, "float32": -126, "bfloat16": -126, "float16": -14}
_MOST_ELEMENTS = 8_000_000  # of a list of tensors; the rest of it is left out
_MOST_ARGUMENTS = 200_000_000  # elements; beyond this a call is not compared


def name_of(func: Any) -> str:
    """An operation without namespace, overload and underscores: ``foreach_add``."""
    return str(func).split(".")[1].strip("_")


def class_of(name: str) -> str:
    return next((known for known, names in _CLASSES.items() if name in names.split()), "sum")


def error_of(actual: Any, reference: Any) -> tuple[float, float]:
    """Largest difference of a result from its reference: in ulps of each element, and in eps.

    Parameters
    ----------
    actual : Tensor
        On any device, in the dtype it was computed in.
    reference : Tensor on the CPU
        The same in float64, or exactly what it has to be.

    Returns
    -------
    ulps, eps : float
        Infinite where shapes, whole numbers, NaN or infinities do not agree.
    """
    import torch

    inf = float("inf")
    if tuple(actual.shape) != tuple(reference.shape):
        return inf, inf
    if actual.numel() == 0:
        return 0.0, 0.0
    kind = str(actual.dtype).removeprefix("torch.")
    a = actual.detach().to("cpu")
    if kind not in _DIGITS:
        same = torch.equal(a.to(torch.complex128), reference.to(torch.complex128))
        return (0.0, 0.0) if same else (inf, inf)
    a, r = a.double(), reference.detach().double()
    finite = torch.isfinite(r)
    odd = ~finite
    if bool(odd.any()):
        same = (a[odd] == r[odd]) | (torch.isnan(a[odd]) & torch.isnan(r[odd]))
        if not bool(same.all()):
            return inf, inf
        a, r = a[finite], r[finite]
        if a.numel() == 0:
            return 0.0, 0.0
    if not bool(torch.isfinite(a).all()):
        return inf, inf
    error = (a - r).abs()
    exponent = torch.frexp(r)[1].double()  # |r| = m 2^e, m in [0.5, 1)
    # Below the smallest normal number an ulp is that number: some devices flush to zero there.
    normal = (exponent > _SMALLEST[kind]) & (r != 0)
    ulp = torch.where(
        normal,
        torch.exp2(exponent - _DIGITS[kind]),
        torch.full_like(exponent, 2.0 ** _SMALLEST[kind]),
    )
    largest = float(r.abs().max())
    worst = float(error.max())
    eps = worst / (largest * 2.0 ** (1 - _DIGITS[kind])) if largest else (inf if worst else 0.0)
    return float((error / ulp).max()), eps


def make_replay(network: Any, *, deadline: float, per_signature: int = 2) -> Any:
    """An observer that repeats operations on the CPU; made here, as it needs torch to be defined.

    Calls that look alike (operation, phase, shapes, dtypes) are repeated ``per_signature`` times:
    the blocks of a network do the same.
    """
    import torch

    from cellrepro.trace.observer import Call, Observer

    class Replay(Observer):
        def __init__(self) -> None:
            super().__init__(network)
            self._seen: dict[Any, int] = {}
            self._rows: dict[str, dict[str, Any]] = {}
            self.not_compared: dict[str, str] = {}
            self.cut_short = False

        def observe(self, call: Call) -> Any:
            name = name_of(call.func)
            why_not = self._why_not(call, name)
            if why_not is not None:
                self.not_compared.setdefault(call.place.op, why_not)
                return call.run()
            row = self._rows.setdefault(call.place.op, new_row(call, name))
            row["n_calls"] += 1
            if time.monotonic() > deadline:
                self.cut_short = True
                return call.run()
            signature = (call.place.op, call.place.phase, *looks(call))
            self._seen[signature] = self._seen.get(signature, 0) + 1
            if self._seen[signature] > per_signature:
                return call.run()
            with torch.no_grad():
                kept = kept_of_lists(call)
                narrow = copied(call, kept, wide=False)
                attempts = [copied(narrow, None, wide=True), narrow]
                returned = call.run()
                actual = outputs(call, returned, kept)
                self._compare(row, call, actual, attempts)
            return returned

        def _why_not(self, call: Call, name: str) -> str | None:
            schema = call.func._schema
            if name in _UNINITIALISED.split() or torch.Tag.inplace_view in call.func.tags:
                return "computes nothing"
            if torch.Tag.nondeterministic_seeded in call.func.tags:
                return "draws random numbers, of which each device has its own"
            writes = any(
                a.alias_info is not None and a.alias_info.is_write for a in schema.arguments
            )
            fresh = any("Tensor" in str(r.type) and r.alias_info is None for r in schema.returns)
            if not writes and not fresh:
                return "computes nothing"
            tensors = [t for t in leaves([*call.args, *call.kwargs.values()]) if is_tensor(t)]
            if sum(t.numel() for t in tensors) > _MOST_ARGUMENTS and not name.startswith("foreach"):
                return f"more than {_MOST_ARGUMENTS} elements"
            return None

        def _compare(self, row: dict, call: Call, actual: list, attempts: list) -> None:
            reasons = []
            for wide, again in zip(("float64", "float32"), attempts, strict=True):
                try:
                    reference = outputs(again, again.run(), None)
                except (RuntimeError, NotImplementedError, TypeError, IndexError) as error:
                    reasons.append(f"{wide}: {str(error).splitlines()[0][:200]}")
                    continue
                if len(reference) != len(actual):
                    reasons.append(f"{wide}: {len(reference)} outputs instead of {len(actual)}")
                    continue
                errors = [error_of(a, r) for a, r in zip(actual, reference, strict=True)]
                ulps, eps = max(e[0] for e in errors), max(e[1] for e in errors)
                row["n_compared"] += 1
                row["reference"] = wide
                limit = LIMITS[row["class"]]
                row["exceeds"] |= limit.ulps is not None and ulps > limit.ulps
                row["exceeds"] |= limit.eps is not None and eps > limit.eps
                if eps >= row["eps"]:
                    row.update(eps=eps, where=str(call.place), shapes=[*map(str, looks(call)[:4])])
                row["ulps"] = max(row["ulps"], ulps)
                return
            self.not_compared.setdefault(call.place.op, "; ".join(reasons))

        def rows(self) -> list[dict[str, Any]]:
            compared = [row for row in self._rows.values() if row["n_compared"]]
            return sorted(compared, key=lambda row: (not row["exceeds"], row["op"]))

    def is_tensor(value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    def leaves(values: Any) -> Iterator[Any]:
        for value in values:
            if isinstance(value, list | tuple):
                yield from leaves(value)
            else:
                yield value

    def looks(call: Call) -> tuple:
        return tuple(
            (tuple(value.shape), str(value.dtype).removeprefix("torch."))
            for value in leaves([*call.args, *call.kwargs.values()])
            if is_tensor(value)
        )

    def new_row(call: Call, name: str) -> dict[str, Any]:
        return {
            "op": call.place.op,
            "class": class_of(name),
            "n_calls": 0,
            "n_compared": 0,
            "ulps": 0.0,
            "eps": 0.0,
            "exceeds": False,
            "reference": None,
            "where": None,
            "shapes": [],
        }

    def kept_of_lists(call: Call) -> list[int] | None:
        """For operations on lists of tensors, the entries to compare; none for all others."""
        if not name_of(call.func).startswith(("foreach", "fused")):
            return None
        first = next((a for a in call.args if isinstance(a, list | tuple)), ())
        kept, total = [], 0
        for index in sorted(range(len(first)), key=lambda i: first[i].numel()):
            total += first[index].numel()
            if kept and total > _MOST_ELEMENTS:
                break
            kept.append(index)
        return sorted(kept)

    def trimmed(value: Any, kept: list[int] | None) -> Any:
        if (
            kept is None
            or not isinstance(value, list | tuple)
            or len(value) <= max(kept, default=0)
        ):
            return value
        return [value[index] for index in kept]

    def copied(call: Call, kept: list[int] | None, *, wide: bool) -> Call:
        """The call on copies of its arguments, on the CPU, in float64 if wide."""
        memo: dict[int, Any] = {}

        def copy(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return type(value)(map(copy, value))
            if is_tensor(value):
                if id(value) not in memo:
                    dtype = torch.float64 if wide and value.is_floating_point() else value.dtype
                    memo[id(value)] = value.detach().to("cpu", dtype, copy=True)
                return memo[id(value)]
            if isinstance(value, torch.device):
                return torch.device("cpu")
            if isinstance(value, torch.dtype) and wide and value.is_floating_point:
                return torch.float64
            return value

        kwargs = {
            name: copy(trimmed(value, kept))
            for name, value in call.kwargs.items()
            if name not in ("pin_memory", "non_blocking")
        }
        return Call(call.func, tuple(copy(trimmed(a, kept)) for a in call.args), kwargs, call.place)

    def outputs(call: Call, returned: Any, kept: list[int] | None) -> list[Any]:
        """What a call gave: its new tensors, then what it wrote into."""
        schema = call.func._schema
        values = returned if len(schema.returns) != 1 else (returned,)
        fresh = [
            trimmed(value, kept)
            for value, r in zip(values or (), schema.returns, strict=False)
            if r.alias_info is None
        ]
        written = [
            trimmed(call.args[i] if i < len(call.args) else call.kwargs.get(argument.name), kept)
            for i, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        return [value for value in leaves([fresh, written]) if is_tensor(value)]

    return Replay()


# -- the list ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    """A check, and about how many seconds it takes."""

    run: Callable[[Lab], dict[str, Any]]
    seconds: Callable[[Lab], float]


CHECKS: dict[str, Check] = {
    "environment": Check(environment, lambda lab: 1),
    "numeric-class": Check(numeric, lambda lab: 5),
    "strict-quiet": Check(strict_quiet, lambda lab: 10),
    "warnings": Check(what_warns, lambda lab: 10 * lab.step_seconds),
    "audit-fast": Check(audited("fast"), lambda lab: 30 * lab.step_seconds),
    "audit-strict": Check(audited("strict"), lambda lab: 30 * lab.step_seconds),
    "strict-repeats": Check(strict_repeats, lambda lab: 15 + 3.3 * lab.steps * lab.step_seconds),
    "cost": Check(cost, lambda lab: 7 * (lab.cost_steps + 1) * lab.step_seconds),
    "operations": Check(operations, lambda lab: 60 * lab.step_seconds),
    "fast-repeats": Check(fast_repeats, lambda lab: 2.2 * lab.steps * lab.step_seconds),
    "segmentation": Check(segmentation, lambda lab: 30 * lab.step_seconds),
}


if __name__ == "__main__":
    sys.exit(main())
