"""Training steps of `tiny` in portable arithmetic, here or in a process with other vector code."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import torch

from cellrepro.model.portable_cellpose import portable_cellpose
from cellrepro.model.portable_training import portable_training
from cellrepro.model.training_loop import TrainingLoop
from cellrepro.spec.training_fields import Hyperparameters
from samebits import generator_states
from samebits.arithmetic.portable_mode import PortableArithmetic
from samebits.seeds import seed_everything
from samebits.tensor_digests import tensor_digest
from small_training import IMAGES, image, outcome, tiny

NO_VECTORS = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "NPY_DISABLE_CPU_FEATURES": (
        "AVX2 FMA3 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
    ),
}
"""A processor without vector instructions beyond SSE, for PyTorch, MKL and NumPy."""

AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2"}


@contextmanager
def portable():
    """What mode ``portable`` puts in force around a training."""
    with portable_cellpose(), portable_training(), PortableArithmetic():
        yield


def begun(*, n_epochs=2, settings=None, **options):
    """A network, and its training of two steps an epoch, with a test image."""
    network = tiny(1)
    seed_everything(3, quiet=True)
    options = {"image_by_image": True, "learning_rate": 0.01, **options}
    settings = Hyperparameters(**(settings or {}))
    loop = TrainingLoop(
        network, IMAGES, [image("c", 2)], n_epochs=n_epochs, settings=settings, **options
    )
    return network, loop


def taken_up(state, **options):
    """A network and its training as they stood when `stopped` was called."""
    network, loop = begun(**options)
    network.load_state_dict(state["network"])
    loop.restore(state["loop"])
    generator_states.restore(state["generators"])
    return network, loop


def stopped(network, loop):
    """All that a checkpoint holds."""
    return {
        "network": {name: value.clone() for name, value in network.state_dict().items()},
        "loop": loop.state(),
        "generators": generator_states.capture(),
    }


def left(network, loop):
    """Digests of everything that a training leaves, and its losses."""
    prepared = {name: tensor_digest(array) for name, array in loop.prepared.items()}
    return outcome(network, loop) | {"prepared": prepared}


def in_another_process(variables, *, n_threads=1, **options):
    """What a training leaves in a process with environment variables of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OMP_NUM_THREADS": str(n_threads),
        **variables,
    }
    command = [sys.executable, __file__, json.dumps({"n_threads": n_threads, "options": options})]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def main():
    """Train as is asked for on the command line, and print what is left."""
    asked = json.loads(sys.argv[1])
    torch.set_num_threads(asked["n_threads"])
    with portable():
        network, loop = begun(**asked["options"])
        loop.run()
    print(json.dumps(left(network, loop)))


if __name__ == "__main__":
    main()
