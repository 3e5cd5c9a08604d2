"""Make .venv from requirements.lock, every file held to its digest; `make setup` calls this.

pip fetches uv, held to uv's own entry of the lock, and uv installs the lock in a tenth of pip's
time; where there is no uv, pip installs everything. ``.venv/.ready`` is written last, so a .venv
without it is what an interrupted set-up left: it is removed, and made anew.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: two set-ups at the same time are then not held apart
    fcntl = None

VENV = Path(".venv")
READY = VENV / ".ready"
LOCK = Path("requirements.lock")
PROJECT = Path("pyproject.toml")
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
IMPORTED = (  # by what every training runs; pandas imports pyarrow
    "cellrepro.run.train",
    "cellrepro.run.worker",
    "cellrepro.grid.grid",
    "cellrepro.show.report.build",
    "cellrepro.cli",
    "cellpose.train",
    "matplotlib.pyplot",
    "pandas",
    "papermill",
    "ipykernel.kernelapp",
    "debugpy",
    "anywidget",
)


def main():
    """Make .venv anew if it is not finished or older than the lock."""
    if not (3, 11) <= sys.version_info < (3, 14):
        sys.exit(
            f"cellrepro needs Python 3.11 to 3.13, and {sys.executable} is "
            f"{sys.version.split()[0]}; name another one: make PYTHON=python3.12 ..."
        )
    os.chdir(Path(__file__).resolve().parents[1])
    with LOCK.open(encoding="utf-8") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a second make waits here, and finds all done
        if READY.exists():
            if READY.stat().st_mtime >= max(LOCK.stat().st_mtime, PROJECT.stat().st_mtime):
                return
            READY.unlink()  # what is interrupted from here on is begun anew
        else:
            remove_unfinished()
            run(sys.executable, "-m", "venv", str(VENV))
        install(lock.read())
        READY.touch()


def remove_unfinished():
    """Remove a .venv that was never finished, and refuse to remove anything else."""
    if not VENV.exists() and not VENV.is_symlink():
        return
    is_venv = not VENV.is_symlink() and (VENV / "pyvenv.cfg").is_file()
    if not is_venv and (not VENV.is_dir() or any(item.is_file() for item in VENV.rglob("*"))):
        sys.exit(
            f"{VENV} is no virtual environment that this set-up has begun"
            + (f", but a link to {VENV.resolve()}" if VENV.is_symlink() else "")
            + "; nothing was removed. Move it away, then run make setup again"
        )
    if is_venv:
        print(f"{VENV} was not finished: removing it and starting anew", file=sys.stderr)
        for item in VENV.iterdir():
            if item.is_dir() and not item.is_symlink():
                shutil.rmtree(item)
            elif item.name != "pyvenv.cfg":  # last, so that an interrupted removal is known again
                item.unlink()
        shutil.rmtree(VENV)


def install(lock):
    """Install what the lock names with uv, or with pip where uv has no wheel; then this project."""
    python = str(BIN / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    uv = [str(BIN / "uv"), "pip", "install", "--quiet", "--python", python]
    entry = re.search(r"^uv==(?:.*\\\n)*.*\n", lock, flags=re.MULTILINE)
    with tempfile.TemporaryDirectory() as scratch:
        uv_lock = Path(scratch, "uv.lock")
        lock_without_uv = Path(scratch, "without-uv.lock")
        uv_lock.write_text(entry[0], encoding="utf-8")
        lock_without_uv.write_text(lock.replace(entry[0], ""), encoding="utf-8")
        # uv's entry alone and no building: some platforms have no wheel of it, and no Rust
        if not (
            succeeds(*pip, "--only-binary=uv", "--require-hashes", "-r", str(uv_lock))
            and succeeds(*uv, "--require-hashes", "-r", str(LOCK))
        ):
            print("uv cannot install here, so pip does, which takes longer", file=sys.stderr)
            run(*pip, "--require-hashes", "-r", str(lock_without_uv))
    run(*pip, "--no-deps", "--no-build-isolation", "-e", ".")
    compile_what_runs(python)


def compile_what_runs(python):
    """Leave the bytecode of what every training imports, as uv compiles nothing.

    Else each of the first processes compiles it, and every process where
    PYTHONDONTWRITEBYTECODE is set, as in many containers. To compile everything instead takes
    three times as long (docs/benchmarks.md).
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    lines = (
        "import contextlib, importlib, sys",
        "for name in sys.argv[1:]:",
        "    with contextlib.suppress(ImportError): importlib.import_module(name)",
    )
    subprocess.run([python, "-c", "\n".join(lines), *IMPORTED], check=False, env=environment)


def succeeds(*command):
    return subprocess.run(command, check=False).returncode == 0


def run(*command):
    if not succeeds(*command):
        sys.exit(f"set-up failed at: {' '.join(command)}; the next make begins it anew")


if __name__ == "__main__":
    main()
