"""A folder of Fashion-MNIST as tensors in memory, whichever way the folder keeps it. Called by `train.py`."""

import importlib
from pathlib import Path
from typing import NamedTuple

import torch
from idx import DataError, find_idx, read_idx
from torch import Tensor


class Split(NamedTuple):
    """Images as bytes (a quarter of the memory of floats) and their classes, in the same order."""

    images: Tensor  # count x 28 x 28, uint8
    labels: Tensor  # count, int64

    def first(self, count: int) -> "Split":
        return Split(self.images[:count], self.labels[:count])

    def to(self, device: torch.device) -> "Split":
        return Split(self.images.to(device), self.labels.to(device))


def load(folder: Path) -> tuple[Split, Split]:
    """The training and the test split of a folder of IDX files or of a Hugging Face `save_to_disk` folder."""
    if find_idx(folder, "train-images-idx3-ubyte"):
        train, test = _idx_split(folder, "train"), _idx_split(folder, "t10k")
    elif (folder / "dataset_dict.json").is_file():
        train, test = _hugging_face_splits(folder)
    elif folder.is_dir():
        raise DataError(
            f"{folder} holds no Fashion-MNIST: neither IDX files (train-images-idx3-ubyte[.gz] and so on) "
            "nor a Hugging Face dataset (dataset_dict.json)"
        )
    else:
        raise DataError(f"{folder} is not a folder; fetch_data.py can fill one with Fashion-MNIST")
    _check(train, f"{folder}, training images")
    _check(test, f"{folder}, test images")
    return train, test


def _idx_split(folder: Path, prefix: str) -> Split:
    def tensor(name: str) -> Tensor:
        path = find_idx(folder, name)
        if path is None:
            raise DataError(f"{folder} lacks {name}[.gz]")
        shape, values = read_idx(path)
        # torch has no view of an empty buffer; that there is nothing in it is found by _check.
        return torch.frombuffer(values, dtype=torch.uint8).reshape(shape) if values else torch.empty(shape)

    return Split(tensor(f"{prefix}-images-idx3-ubyte"), tensor(f"{prefix}-labels-idx1-ubyte").long())


def _hugging_face_splits(folder: Path) -> tuple[Split, Split]:
    try:
        datasets = importlib.import_module("datasets")  # needed for folders of its making only
    except ImportError:
        raise DataError(
            f"{folder} is a Hugging Face dataset; reading it needs a package: pip install datasets pillow"
        ) from None
    splits = datasets.load_from_disk(str(folder))

    def split(name: str) -> Split:
        columns = splits[name].with_format("numpy")[:]
        images, labels = torch.as_tensor(columns["image"]), torch.as_tensor(columns["label"])
        return Split(images.to(torch.uint8), labels.long())

    try:
        return split("train"), split("test")
    except (KeyError, TypeError) as error:  # a split or a column is missing, or the images differ in size
        raise DataError(
            f"{folder} is not Fashion-MNIST, which has the splits train and test "
            f"with the columns image and label: {error}"
        ) from error


def _check(split: Split, name: str) -> None:
    """A wrong shape would otherwise show much later, as an error deep inside the network."""
    images, labels = tuple(split.images.shape), tuple(split.labels.shape)
    if len(images) != 3 or images[1:] != (28, 28) or labels != images[:1] or images[0] == 0:
        raise DataError(f"{name}: not N x 28 x 28 with N labels, but the shapes {images} and {labels}")
    if not 0 <= int(split.labels.min()) <= int(split.labels.max()) <= 9:
        raise DataError(f"{name}: a label is not one of the ten classes 0 to 9")
