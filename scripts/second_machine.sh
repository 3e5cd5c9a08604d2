#!/usr/bin/env bash
# A second machine without owning one: cellrepro on an emulated processor.
#
#   scripts/second_machine.sh MACHINE FOLDER DATA VERB OPTION...
#   scripts/second_machine.sh arm64 ~/arm64 data/nuclei train /data/nuclei --epochs 2 --seed 42
#
# MACHINE  arm64: an ARM Neoverse N1 with the aarch64 wheels of requirements.lock, in a Debian
#          system of its own below FOLDER. nehalem: an x86-64 processor without AVX, with the
#          libraries of .venv.
# FOLDER   outside of the repository; its `outputs` is the store. Unite it with another one by
#          `cp -rn FOLDER/outputs/runs FOLDER/outputs/data STORE/`.
# DATA     a folder that the command finds as /data/NAME: its name is part of what is asked for.
#
# Needs root, and Debian's qemu-user-static, mmdebstrap and arch-test. The arithmetic is that of the
# libraries' code for that processor, some hundred times slower; the name of the machine in every
# run begins with `emulated`.
set -euo pipefail
kind=$1 folder=$(realpath -m "$2") data=$(realpath "$3")
shift 3
top=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$folder/outputs"
# A processor is chosen by the variables of a profile and by nothing that the caller has set.
unset OPENBLAS_CORETYPE OPENBLAS_NUM_THREADS
export CELLREPRO_MACHINE=emulated-$kind PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore
run='from cellrepro.cli import main; main()'

build_arm64() {
    mmdebstrap --variant=apt --arch=arm64 --include=python3,libgomp1 bookworm "$folder/root"
    "$top/.venv/bin/uv" pip install --python-platform aarch64-manylinux_2_36 --python-version 3.11 \
        --only-binary :all: --target "$folder/root/opt/site" \
        --constraint "$top/requirements.lock" --requirement "$top/pyproject.toml" --extra lab
    # What libraries read of a processor; the kernel's files describe the one that emulates.
    cpu=$folder/root/sys/devices/system/cpu
    for n in 0 1; do
        mkdir -p "$cpu/cpu$n/regs/identification"
        echo 0x00000000413fd0c1 >"$cpu/cpu$n/regs/identification/midr_el1"
        printf '%s\n' "processor : $n" "model name : QEMU Neoverse-N1" "flags : asimd" "Features : fp\
 asimd aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp" \
            "CPU implementer : 0x41" "CPU architecture: 8" "CPU variant : 0x3" "CPU part : 0xd0c" \
            "CPU revision : 1" ""
    done >"$folder/cpuinfo"
    for list in possible present online; do echo 0-1 >"$cpu/$list"; done
    mkdir -p "$folder/root/"{lab,data,outputs}
    touch "$folder/built"
}

on_arm64() {
    root=$folder/root
    mount -t proc proc "$root/proc"
    mount --bind "$folder/cpuinfo" "$root/proc/cpuinfo"
    mount --bind /dev "$root/dev"
    mount --bind "$top" "$root/lab"
    mount -t tmpfs data "$root/data"
    mkdir "$root/data/$(basename "$data")"
    mount --bind "$data" "$root/data/$(basename "$data")"
    mount --bind "$folder/outputs" "$root/outputs"
    export QEMU_CPU=neoverse-n1 PYTHONPATH=/opt/site:/lab/src HOME=/root
    exec chroot "$root" sh -c 'cd /lab && exec nice -n 19 python3 -c "$0" "$@"' "$run" "$@"
}

build_nehalem() {
    mkdir -p "$folder/bin"
    cp "$top/.venv/pyvenv.cfg" "$folder/"
    ln -sfn "$top/.venv/lib" "$folder/lib"
    # Also for the processes that the lab starts: this file is their Python.
    printf '#!/bin/sh\nexec qemu-x86_64-static -cpu Nehalem -0 "$0" %s "$@"\n' \
        "$(realpath "$top/.venv/bin/python")" >"$folder/bin/python"
    chmod +x "$folder/bin/python"
    for n in 0 1; do
        printf '%s\n' "processor : $n" "model name : QEMU Nehalem" "flags : sse4_2 popcnt" ""
    done >"$folder/cpuinfo"
    touch "$folder/built"
}

on_nehalem() {
    mount --bind "$folder/cpuinfo" /proc/cpuinfo
    mkdir -p /data /outputs
    if [ "$data" != "/data/$(basename "$data")" ]; then
        mount -t tmpfs data /data
        mkdir "/data/$(basename "$data")"
        mount --bind "$data" "/data/$(basename "$data")"
    fi
    mount --bind "$folder/outputs" /outputs
    PYTHONPATH=$top/src exec nice -n 19 "$folder/bin/python" -c "$run" "$@"
}

[[ $kind =~ ^(arm64|nehalem)$ ]] || {
    echo "$kind is no machine that can be emulated here; expected arm64 or nehalem" >&2
    exit 2
}
[ -e "$folder/built" ] || "build_$kind"
export -f "on_$kind"
export folder top data run
[ "$1" = doctor ] || set -- "$@" --store /outputs  # which keeps nothing
exec unshare --mount bash -c 'set -e; "$0" "$@"' "on_$kind" "$@"
