"""Small trainings, of plain PyTorch and of `tiny`, their checkpoints, and ways to damage one."""

import json
import random
from dataclasses import asdict

import numpy as np
import torch
from torch import nn

from cellrepro.images.folder import LabelledImage
from cellrepro.model.network import build
from cellrepro.model.training_loop import TrainingLoop
from cellrepro.model.weight_sources import ModelSource
from cellrepro.store import checkpoints
from cellrepro.store.checkpoints import Origin
from samebits import generator_states
from samebits.generator_digests import generator_digests
from samebits.seeds import seed_everything
from samebits.tensor_digests import tensor_digest

ORIGIN = Origin(
    spec={"seed": 3, "data_digest": "d" * 64, "model": "tiny", "epochs": 3},
    repeat=0,
    numeric_class={"name": "0123456789ab", "probes": {"sum/float32": "aa", "conv/float32": "bb"}},
    initial_weights="e" * 64,
)


def left_by(network, optimizer):
    """Digests of weights and moments, the learning rates, and the generators."""
    held = optimizer.state_dict()
    return {
        "weights": tensor_digest(dict(network.state_dict())),
        "moments": tensor_digest(held["state"]),
        "rates": [float(group["lr"]).hex() for group in held["param_groups"]],
        "generators": generator_digests(),
    }


class Small:
    """A network with dropout and running statistics, whose data come from every generator."""

    def __init__(self, seed=3):
        seed_everything(seed)
        self.network = nn.Sequential(
            nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Dropout(0.3), nn.Linear(5, 2)
        )
        first, *others = self.network.parameters()
        groups = [{"params": first}, {"params": others, "weight_decay": 0.0, "betas": (0.8, 0.99)}]
        self.optimizer = torch.optim.AdamW(groups, lr=0.01)
        self.losses = []

    def epoch(self):
        for group in self.optimizer.param_groups:
            group["lr"] = np.float64(0.01) / (3 + len(self.losses))
        for _ in range(2):
            x = torch.from_numpy(np.random.rand(4, 3).astype("float32")) * random.random()
            loss = self.network(x).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.losses.append(loss.item())

    def save(self, parent):
        loop = {"epochs": self.losses, "n_steps": 2 * len(self.losses)}
        state = checkpoints.LoopState(loop, self.optimizer.state_dict())
        made = {"origin": ORIGIN, "network": self.network, "n_rows": {"ledger.parquet": 7}}
        return checkpoints.save(parent, loop_state=state, **made)

    def go_on(self, checkpoint):
        state = checkpoint.training_state()
        self.network.load_state_dict(state.network)
        self.optimizer.load_state_dict(state.loop.optimizer)
        self.losses = list(checkpoint.loop["epochs"])
        generator_states.restore(checkpoint.generators)

    def outcome(self):
        return left_by(self.network, self.optimizer), self.losses


def change_byte(folder):
    path = folder / checkpoints.STATE
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def change_plain(**changes):
    def change(folder):
        path = folder / checkpoints.PLAIN
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def image(name, seed):
    """64 x 64 pixels with nine cells."""
    masks = np.zeros((64, 64), np.int32)
    for index in range(9):
        y, x = 8 + 20 * (index // 3), 8 + 20 * (index % 3)
        masks[y - 5 : y + 5 + index % 2, x - 5 : x + 5] = index + 1
    noise = np.random.default_rng(seed).integers(0, 50, masks.shape)
    return LabelledImage(name, ((masks > 0) * 100 + noise).astype(np.uint8), masks, name)


IMAGES = [image("a", 0), image("b", 1)]


def tiny(seed=0, dtype="float32", **changes):
    source = ModelSource("tiny", "tiny", **changes)
    return build(source, seed=seed, device=torch.device("cpu"), dtype=dtype)


def begun(*, seed=3, watch=lambda network: None, **options):
    """A network and its loop, seeded, about to begin."""
    network = tiny(1)
    seed_everything(seed)
    options = {"n_epochs": 3, "learning_rate": 0.01, **options}
    return network, TrainingLoop(network, IMAGES, (), watch=watch(network), **options)


def walked(network, loop, *, to=None):
    while not loop.finished and loop.training.n_steps != to:
        loop.step()
    return outcome(network, loop)


def outcome(network, loop):
    return left_by(network, loop.optimizer) | {"training": asdict(loop.training)}
