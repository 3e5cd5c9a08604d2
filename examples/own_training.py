"""A small classifier in plain PyTorch, on made-up pictures, that repeats bit for bit.

    python examples/own_training.py FOLDER                        # makes the pictures, trains
    python examples/own_training.py FOLDER --epochs 8 --resume    # goes on from its checkpoint

It prints a digest of the weights: equal digests are equal bits. Nothing here needs Cellpose.
"""

import argparse
import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, default_collate

import samebits


def make_pictures(folder, n=96):
    """Write pictures of 16 x 16 pixels: noise, and a disc or a square; all of them or none."""
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    scratch.mkdir(parents=True)
    y, x = np.mgrid[:16, :16] - 8
    for index in range(n):
        draw = samebits.item_generator(0, epoch=0, index=index)
        size = draw.integers(3, 7)
        shape = ("disc", "square")[index % 2]
        inside = np.hypot(y, x) < size if shape == "disc" else np.maximum(abs(y), abs(x)) < size
        picture = (inside + draw.normal(0, 0.3, inside.shape)).astype(np.float32)
        np.save(scratch / f"{index:03}_{shape}.npy", picture)
    try:
        scratch.rename(folder)
    except OSError:  # another process of this training was first
        shutil.rmtree(scratch)


class Pictures(Dataset):
    """The pictures of a folder, each turned otherwise in every epoch."""

    def __init__(self, folder, seed):
        self.files = sorted(folder.glob("*.npy"))  # a directory lists them as it likes
        self.seed = seed
        self.epoch = 0

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        # A generator for this picture in this epoch: no matter which worker loads it, and when.
        draw = samebits.item_generator(self.seed, self.epoch, index)
        picture = np.rot90(np.load(self.files[index]), k=draw.integers(4))
        return torch.from_numpy(picture.copy())[None], int("disc" in self.files[index].name)


def make_network():
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(8 * 7 * 7, 2),
    )  # fmt: skip


def accuracy(network, test, seed):
    """Share of pictures told right, under noise that is the same whenever this is asked."""
    pictures, labels = default_collate(list(test))
    noise = torch.randn(pictures.shape, generator=samebits.generator(seed))
    network.eval()
    with torch.no_grad():
        right = network(pictures + 0.3 * noise).argmax(1) == labels
    network.train()
    return right.double().mean().item()


def train(folder, seed, epochs, workers, resume):
    # One seed for the data of all processes; each its own for what it draws itself. torchrun sets
    # these variables.
    rank = int(os.environ.get("RANK", 0))
    n_ranks = int(os.environ.get("WORLD_SIZE", 1))
    own_seed = samebits.rank_seed(seed, rank, n_ranks)
    file = folder / ("checkpoint.pt" if n_ranks == 1 else f"checkpoint-{rank}.pt")
    begin = 0
    # A different seed's checkpoint is refused; of a file that holds none it gives False.
    if resume and not samebits.check_seed_of(file, seed=own_seed):
        raise samebits.BadInput(
            f"{file} was not written by this script, and says no seed; give one that was"
        )
    samebits.seed_everything(own_seed)
    torch.use_deterministic_algorithms(True)

    pictures = Pictures(folder / "pictures", seed)
    looked = samebits.check_dataset(pictures)
    print(looked.sentence(), looked.batch.to_string(), sep="\n")
    if not looked.ok:
        raise SystemExit("the pictures would not be the same again")
    names = [file.name for file in pictures.files]
    in_train, in_test = samebits.split(names, [0.75, 0.25], seed)
    test = Subset(pictures, in_test)
    loader = DataLoader(
        Subset(pictures, in_train), batch_size=12, shuffle=True, num_workers=workers,
        **samebits.loader_arguments(seed, rank=rank),
    )  # fmt: skip

    network = make_network()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)

    def step(images, labels):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    batch = default_collate([pictures[index] for index in in_train[:12]])
    found = samebits.check_repeatable(lambda: step(*batch), network, optimizer, n=10)
    print(found.sentence())  # everything is as before

    if resume:
        checkpoint = torch.load(file, weights_only=True)
        network.load_state_dict(checkpoint["network"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        schedule.load_state_dict(checkpoint["schedule"])
        loader.generator.set_state(checkpoint["order"])
        begin = checkpoint["epoch"]
        if begin > epochs:
            raise samebits.BadInput(
                f"{file} is of epoch {begin}; expected --epochs {begin} or more"
            )
        samebits.restore(checkpoint)  # last: nothing may draw between this and the first step

    for epoch in range(begin, epochs):
        pictures.epoch = epoch
        for images, labels in loader:
            loss = step(images, labels)
        schedule.step()
        checkpoint = {
            "epoch": epoch + 1,
            "network": network.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "order": loader.generator.get_state(),
        }
        torch.save(samebits.add_seed_to(checkpoint), file)
        print(f"epoch {epoch + 1}: loss {loss.item():.4f}")

    weights = b"".join(tensor.numpy().tobytes() for tensor in network.state_dict().values())
    print(f"accuracy {accuracy(network, test, seed):.3f}")
    print(f"weights {hashlib.sha256(weights).hexdigest()[:16]}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args()
    if given.epochs < 1 or given.workers < 0:
        parser.error("expected --epochs of 1 or more, and --workers of 0 or more")
    try:
        if not (given.folder / "pictures").exists():
            make_pictures(given.folder / "pictures")
        train(given.folder, given.seed, given.epochs, given.workers, given.resume)
    except (samebits.SamebitsError, OSError) as error:  # a sentence, no traceback
        raise SystemExit(f"{parser.prog}: {error}") from None
