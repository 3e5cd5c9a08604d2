"""Tables for notebooks, as data frames: a row a thing, a column a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cellrepro.control import determinism, profiles
from cellrepro.errors import NotPossibleHere
from cellrepro.record import host
from cellrepro.record.store import Repeat, Run

if TYPE_CHECKING:
    import pandas as pd

    from cellrepro.compare.masks import MaskComparison
    from cellrepro.record.manifest import PlaceRecord


def host_table() -> pd.DataFrame:
    """This machine and the versions that matter, one a row."""
    machine = host.host()
    rows = {
        "processor": machine["processor"],
        "vector instructions": ", ".join(machine["instructions"]) or "none of those PyTorch uses",
        "cores": machine["cores"],
        "memory": f"{machine['memory'] / 2**30:.0f} GiB",
        "GPU": ", ".join(gpu["name"] for gpu in machine["gpus"]) or "none from NVIDIA",
        "system": machine["system"],
        **host.versions(),
    }
    return _frame([{"what": name, "here": value} for name, value in rows.items()], "what")


def profile_table() -> pd.DataFrame:
    """The profiles, what they fix, and whether this machine can run them."""
    rows = []
    for name in profiles.names():
        profile = profiles.load(name)
        rows.append(
            {
                "profile": name,
                "what it is": profile.description,
                "device": profile.device,
                "threads": profile.threads or "all",
                "variables": ", ".join(f"{k}={v}" for k, v in profile.environment.items()) or "-",
                "runs here": _runs_here(profile),
            }
        )
    return _frame(rows, "profile")


def _runs_here(profile: profiles.Profile) -> str:
    try:
        profile.check_device()
    except NotPossibleHere:
        return f"no: no {profile.device} device"
    return "yes"


def switch_table() -> pd.DataFrame:
    """Every switch in every mode, as PyTorch reads it back in this process."""
    in_force = {}
    for mode in determinism.MODES:
        with determinism.mode_in_force(mode, device="cpu") as switches:
            in_force[mode] = switches | determinism.environment(mode)
    names = [name for name in in_force["strict"] if name != "CUBLAS_WORKSPACE_CONFIG"]
    rows = [
        {"switch": name, **{mode: str(in_force[mode][name]) for mode in in_force}} for name in names
    ]
    rows.append(
        {
            "switch": "CUBLAS_WORKSPACE_CONFIG (set before the process starts)",
            **{
                mode: determinism.environment(mode).get("CUBLAS_WORKSPACE_CONFIG", "-")
                for mode in in_force
            },
        }
    )
    return _frame(rows, "switch")


def repeat_table(repeats: Sequence[Repeat]) -> pd.DataFrame:
    """The repeats of a run: digests, objects, agreement with the ground truth, time."""
    rows = []
    for repeat in repeats:
        manifest = repeat.manifest
        rows.append(
            {
                "repeat": manifest.repeat,
                "weights": manifest.weights.digest[:12] if manifest.weights else "-",
                "masks": manifest.masks_digest[:12],
                "objects": manifest.n_objects,
                "AP@0.5": _rounded(manifest.ap50),
                "seconds": round(sum(manifest.seconds.values()), 1),
                "vacuous": "; ".join(manifest.vacuous) or "no",
            }
        )
    return _frame(rows, "repeat")


def run_table(runs: Sequence[Run]) -> pd.DataFrame:
    """What a store holds: one row a repeat."""
    rows = []
    for run in runs:
        spec = run.spec
        for repeat in run.repeats:
            manifest = repeat.manifest
            rows.append(
                {
                    "run": repeat.name,
                    "task": spec.task,
                    "data": spec.data,
                    "model": spec.model,
                    "seed": spec.seed,
                    "profile": spec.profile,
                    "mode": spec.held,
                    "weights": manifest.weights.digest[:8] if manifest.weights else "-",
                    "masks": manifest.masks_digest[:8],
                    "objects": manifest.n_objects,
                    "AP@0.5": _rounded(manifest.ap50),
                    "seconds": round(sum(manifest.seconds.values()), 1),
                }
            )
    return _frame(rows, "run")


def warning_table(repeats: Sequence[Repeat]) -> pd.DataFrame:
    """Every kind of warning of some repeats: what, where, when, how often.

    Operation, pass, module and line are known of repeats in mode ``warn``, which watches every
    operation; elsewhere they are dashes.
    """
    rows = [
        {
            "run": repeat.name,
            "phase": record.phase,
            "times": record.count,
            "about determinism": "yes" if is_about_determinism(record.message) else "no",
            **_place(record.place),
            "message": record.message.split(". ")[0],
            "raised at": f"{'/'.join(record.file.split('/')[-2:])}:{record.line}",
        }
        for repeat in repeats
        for record in repeat.manifest.warnings
    ]
    columns = (
        *("run", "phase", "times", "about determinism", *_place(None)),
        *("message", "raised at"),
    )
    return _frame(rows, "run", columns=columns)


def _place(place: PlaceRecord | None) -> dict[str, str]:
    """The columns that say which operation warned."""
    if place is None:
        return dict.fromkeys(("operation", "pass", "module", "source line"), "-")
    return {
        "operation": place.op,
        "pass": place.phase,
        "module": place.module or "-",
        "source line": place.source or "-",
    }


def is_about_determinism(message: str) -> bool:
    """Whether a warning is one of PyTorch's about operations without a deterministic way.

    Examples
    --------
    >>> is_about_determinism("put_ does not have a deterministic implementation, but you set ...")
    True
    >>> is_about_determinism("Deterministic behavior was enabled, but this operation uses CuBLAS")
    True
    """
    return "determinis" in message.lower()


def mask_table(masks: Mapping[str, MaskComparison]) -> pd.DataFrame:
    """How two sets of masks differ, image by image."""
    rows = [
        {
            "image": name,
            "verdict": str(result.verdict),
            "objects A": result.n_objects_a,
            "objects B": result.n_objects_b,
            "matched": result.n_matched,
            "lost": len(result.lost),
            "gained": len(result.gained),
            "only A (px)": result.n_only_a,
            "only B (px)": result.n_only_b,
            "other object (px)": result.n_other_object,
            "ppm": round(result.ppm),
        }
        for name, result in masks.items()
    ]
    return _frame(rows, "image")


def difference_table(fields: Mapping[str, tuple[Any, Any]], a: str, b: str) -> pd.DataFrame:
    """Fields in which two runs differ, side by side."""
    rows = [{"field": name, a: str(x), b: str(y)} for name, (x, y) in fields.items()]
    return _frame(rows, "field", columns=("field", a, b))


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(score, 3)


def _frame(
    rows: list[dict[str, Any]], index: str, *, columns: Sequence[str] | None = None
) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(rows, columns=columns).set_index(index)
