"""Tables of where a training can run: the machine, its profiles, the switches of each mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellrepro.profiles import profiles
from cellrepro.profiles.profile_names import profile_names
from cellrepro.show.tables.frames import frame
from cellrepro.store import hardware, installed_versions
from samebits import modes
from samebits.errors import NotPossibleHere
from samebits.mode_names import MODES

if TYPE_CHECKING:
    import pandas as pd

    from cellrepro.profiles.profiles import Profile


def host_table() -> pd.DataFrame:
    """Describe this machine and the versions that matter, one a row."""
    host = hardware.host()
    facts = {
        "processor": host["processor"],
        "vector instructions": ", ".join(host["instructions"]) or "none of those PyTorch uses",
        "cores": host["cores"],
        "memory": f"{host['memory'] / 2**30:.0f} GiB",
        "GPU": ", ".join(gpu["name"] for gpu in host["gpus"]) or "none from NVIDIA",
        "system": host["system"],
        **installed_versions.versions(),
    }
    return frame([{"what": name, "here": value} for name, value in facts.items()], "what")


def profile_table() -> pd.DataFrame:
    """List the profiles, what they fix, and whether this machine can run them."""
    rows = []
    for name in profile_names():
        profile = profiles.load(name)
        variables = ", ".join(f"{key}={value}" for key, value in profile.environment.items())
        rows.append(
            {
                "profile": name,
                "what it is": profile.description,
                "device": profile.device,
                "threads": profile.threads or "all",
                "variables": variables or "-",
                "runs here": _runs_here(profile),
            }
        )
    return frame(rows, "profile")


def _runs_here(profile: Profile) -> str:
    try:
        profile.check_device()
    except NotPossibleHere:
        return f"no: no {profile.device} device"
    return "yes"


def switch_table() -> pd.DataFrame:
    """List the switches in which the modes differ, as PyTorch reads them back in this process."""
    in_force: dict[str, dict[str, object]] = {}
    for mode in MODES:
        with modes.mode_in_force(mode, device="cpu") as switches:
            in_force[mode] = switches | modes.environment(mode)
    rows = []
    for name in in_force["strict"]:
        heading = f"{name} (set before the process starts)" if name.isupper() else name
        values = {mode: _switch_text(switches.get(name)) for mode, switches in in_force.items()}
        if len({*values.values()}) > 1:
            rows.append({"switch": heading, **values})
    return frame(rows, "switch")


def _switch_text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "–"
    return "–" if value is None else str(value)
