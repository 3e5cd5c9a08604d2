"""A Slurm of one node with two GPUs that are none, from Debian's packages, for one test."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

PROGRAMS = ("slurmctld", "slurmd", "munged", "sbatch")
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
SECONDS = 60

CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
KillWait=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory={memory} Gres=gpu:2 State=UNKNOWN
PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def installed():
    """Install the packages where that is possible; else skip with the reason."""
    os.environ["PATH"] += "" if "/usr/sbin" in os.environ["PATH"] else ":/usr/sbin"
    if all(map(shutil.which, PROGRAMS)):
        return
    if os.getuid() or not shutil.which("apt-get"):
        pytest.skip("Slurm is not installed, and only root can install Debian's packages")
    quiet = {"capture_output": True, "text": True, "check": False}
    subprocess.run(["apt-get", "update", "-qq"], **quiet)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES]
    done = subprocess.run(command, env=environment, **quiet)
    if done.returncode:
        pytest.skip(f"Slurm cannot be installed: {done.stderr.strip()[-200:]}")


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextmanager
def slurm(folder: Path):
    """Start munged, slurmctld and slurmd; yields the variables that Slurm's commands need."""
    installed()
    host = socket.gethostname().split(".")[0]
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    gpus = [folder / f"gpu{number}" for number in range(2)]
    for number, gpu in enumerate(gpus):  # Slurm sets CUDA_VISIBLE_DEVICES for devices alone
        subprocess.run(["mknod", gpu, "c", "195", str(number)], check=True)
    places = {"host": host, "folder": folder, "ports": free_ports(2)}
    memory = psutil.virtual_memory().total // 2**20
    (folder / "slurm.conf").write_text(CONFIGURATION.format(**places, memory=memory))
    lines = [f"NodeName={host} Name=gpu File={gpu}\n" for gpu in gpus]
    (folder / "gres.conf").write_text("".join(lines))
    files = {name: folder / f"munge.{name}" for name in ("socket", "pid", "log", "seed")}
    munge = [
        f"--{name}{'' if name == 'socket' else '-file'}={file}" for name, file in files.items()
    ]
    configured = ("-D", "-f", folder / "slurm.conf")
    commands = (
        ("munged", "--foreground", "--force", f"--key-file={key}", *munge),
        ("slurmctld", *configured),
        ("slurmd", *configured, "-N", host),
    )
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    daemons = []
    try:
        with (folder / "daemons.log").open("w") as log:
            for command in commands:
                said = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}
                daemons.append(subprocess.Popen(command, env=environment, **said))
                time.sleep(0.5)
        _wait_until_idle(environment, folder)
        yield environment
    finally:
        _end_jobs(environment)
        family = [child for one in daemons for child in _family(one.pid)]
        for one in reversed(family):
            one.kill()
        for one in daemons:
            one.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _end_jobs(environment):
    """A job is nobody's child, so killing the daemons would leave it."""
    subprocess.run(["scancel", "--state=RUNNING,PENDING"], env=environment, check=False)
    until = time.monotonic() + 15
    while time.monotonic() < until:
        command = ["squeue", "--noheader"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode or not done.stdout.strip():
            return
        time.sleep(0.3)


def _family(pid):
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _wait_until_idle(environment, folder):
    until, said = time.monotonic() + SECONDS, ""
    while time.monotonic() < until:
        command = ["sinfo", "--noheader", "--format=%T"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        if done.stdout.strip() == "idle":
            return
        time.sleep(0.3)
    logs = "\n".join(path.read_text()[-1500:] for path in sorted(folder.glob("*.log")))
    raise AssertionError(f"Slurm did not become idle within {SECONDS} s: {said}\n{logs}")
