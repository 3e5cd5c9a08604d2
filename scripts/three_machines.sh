#!/usr/bin/env bash
# Three machines check one run, and their receipts lie in one small file.
#
#   scripts/three_machines.sh FOLDER        # a new folder; an hour on two cores, most of it emulated
#
# "Basel" trains a small network and segments with it, in mode portable and in mode strict; two
# files are handed on. "Laptop" replays them with the profile cpu-avx2, "Kyoto" on an emulated
# processor without AVX (scripts/second_machine.sh, which needs root and qemu). All that comes back
# is imported into one store, whose report shows it. Left in FOLDER: the bundle
# three_machines.intoto.jsonl, whom to believe (allowed_signers), and one/report/index.html.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
cd "$1"
export PATH=$top/.venv/bin:$PATH
unset OPENBLAS_CORETYPE OPENBLAS_NUM_THREADS

mkdir keys
for who in basel laptop kyoto; do
    ssh-keygen -q -t ed25519 -N "" -C "$who" -f "keys/$who"
    echo "$who@lab.example $(cat "keys/$who.pub")" >>allowed_signers
done
export CELLREPRO_ALLOWED_SIGNERS=$PWD/allowed_signers

key_of() { # the key of the only run of a task and a mode
    cellrepro list --where "task=$1" --where "mode=$2" --store basel --json |
        python -c 'import json, sys; print(json.load(sys.stdin)["runs"][0]["key"])'
}

images=$(cellrepro data synthetic --images 4 --size 256 --cells 25 --into data)
training=$(cellrepro data synthetic --into data)
CELLREPRO_MACHINE=basel cellrepro train "$training" --epochs 12 --repeats 1 --store basel
network=$(key_of train strict)/0
for mode in portable strict; do
    CELLREPRO_MACHINE=basel cellrepro segment "$images" --model "$network" --mode "$mode" \
        --repeats 2 --store basel
    cellrepro export "$(key_of segment "$mode")/0" "$mode.cellrepro.zip" \
        --weights --images --sign keys/basel.pub --store basel
done

# A replay that differs ends with 1, and is a result.
for mode in portable strict; do
    CELLREPRO_MACHINE=laptop cellrepro verify "$mode.cellrepro.zip" --replay --profile cpu-avx2 \
        --receipt "laptop_$mode.intoto.jsonl" --sign keys/laptop.pub --store laptop || [ $? = 1 ]
    "$top/scripts/second_machine.sh" nehalem emulated "$images" verify "$PWD/$mode.cellrepro.zip" \
        --replay --receipt "$PWD/kyoto_$mode.intoto.jsonl" --sign "$PWD/keys/kyoto.pub" || [ $? = 1 ]
done

# One statement a line, in any order: files of receipts are united by writing one behind the other.
cat ./laptop_*.intoto.jsonl ./kyoto_*.intoto.jsonl | awk '!seen[$0]++' >three_machines.intoto.jsonl
for mode in portable strict; do
    cellrepro import "$mode.cellrepro.zip" --store one
done
for where in laptop emulated/outputs; do
    cellrepro export --where task=segment replays.cellrepro.zip --store "$where"
    cellrepro import replays.cellrepro.zip --store one
    rm replays.cellrepro.zip
done
cellrepro import three_machines.intoto.jsonl --store one
cellrepro report --store one
