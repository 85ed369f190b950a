"""What names mean: which say where a training stands, which are metrics for sure, and which are none."""

from __future__ import annotations

import re
from functools import lru_cache

STEP = frozenset({"step", "global_step", "globalstep", "iteration", "iter", "trainer/global_step"})
EPOCH = frozenset({"epoch"})
# Numbers about the line or the process, which are in many a logger's lines.
NO_METRIC = frozenset((
    "asctime", "created", "device", "devices", "group_rank", "line", "lineno", "local_rank", "node_rank",
    "pid", "port", "ppid", "process", "process_id", "rank", "seed", "thread", "thread_id", "tid",
    "time_stamp", "timestamp", "ts", "version", "world_size",
))  # fmt: skip
_METRIC_WORDS = frozenset((
    "acc", "accuracy", "auc", "auroc", "bleu", "bpb", "bpc", "cer", "dice", "elbo", "f1", "fid", "grad",
    "iou", "kl", "learning", "loss", "losses", "lr", "mae", "map", "mape", "miou", "mse", "nll", "perplexity",
    "ppl", "precision", "psnr", "r2", "recall", "reward", "rmse", "rouge", "score", "ssim", "throughput",
    "top1", "top5", "wer",
))  # fmt: skip
_METRIC_ENDS = ("loss", "accuracy", "acc", "rate", "norm")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]*")


@lru_cache(maxsize=1024)
def is_metric(name: str) -> bool:
    """Whether a value of this name can be a metric: variables of an environment are not."""
    return name.lower() not in NO_METRIC and not _VARIABLE.fullmatch(name)


@lru_cache(maxsize=1024)
def is_known_metric(name: str) -> bool:
    """Whether it is a metric by its name alone: `loss`, `val_loss`, `Accuracy`, `top1`."""
    lowered = name.lower()
    return lowered.endswith(_METRIC_ENDS) or not _METRIC_WORDS.isdisjoint(re.split(r"[^a-z0-9]+", lowered))


@lru_cache(maxsize=1024)
def is_loss(name: str) -> bool:
    """Whether it is a loss by its name: `loss`, `train/loss`, `Loss`."""
    return name.lower().endswith("loss")
