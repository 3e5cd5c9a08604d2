"""Make .venv from requirements.lock, every file held to its digest; `make setup` calls this.

uv installs the lock in a tenth of pip's time; where there is none, pip fetches it, held to its own
entry of the lock. ``.venv/.cellrepro-setup`` is written first and ``.venv/.ready`` last, so a .venv
with the first alone is what an interrupted set-up left: it is removed, and made anew. A .venv with
neither is somebody's own, and stays. How it is made stands in
``src/cellrepro/process/locked_environment.py``, which `cellrepro setup` uses, too.
"""

import os
import sys
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = Path(".venv")
LOCK = Path("requirements.lock")
PROJECT = Path("pyproject.toml")
BEYOND_ANY_END = 1 << 30


def main():
    """Make .venv anew if it is not finished or older than the lock."""
    if not (3, 11) <= sys.version_info < (3, 14):
        sys.exit(
            f"cellrepro needs Python 3.11 to 3.13, and {sys.executable} is "
            f"{sys.version.split()[0]}; name another one: make PYTHON=python3.12 ..."
        )
    sys.path.append(str(ROOT / "src" / "cellrepro" / "process"))
    from locked_environment import LockedEnvironment, SetUpFailed

    os.chdir(ROOT)
    environment = LockedEnvironment(VENV, LOCK, mark=".cellrepro-setup", again="make setup")
    with held(LOCK):  # a second make waits here, and finds all done
        try:
            make_ready(environment)
        except SetUpFailed as failure:
            sys.exit(str(failure))


@contextmanager
def held(path):
    """Lock a file for the block; other processes wait here."""
    with path.open("rb") as file:
        if os.name == "nt":
            hold_on_windows(file)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def hold_on_windows(file):
    """Lock a byte far beyond the end of a file, so that the file stays readable for everybody."""
    import msvcrt

    file.seek(BEYOND_ANY_END)
    while True:
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
        except OSError:  # it gives up after ten seconds
            continue
        file.seek(0)
        return


def make_ready(environment):
    """Make the environment, or install again what is older than the lock."""
    ready = environment.ready
    if ready.exists():
        if ready.stat().st_mtime >= max(LOCK.stat().st_mtime, PROJECT.stat().st_mtime):
            return
        environment.begin_again()  # what is interrupted from here on is begun anew
    else:
        environment.make(sys.executable)
    environment.install()
    environment.install_package("--no-build-isolation", "-e", ".")
    environment.compile_what_runs()
    ready.touch()


if __name__ == "__main__":
    main()
