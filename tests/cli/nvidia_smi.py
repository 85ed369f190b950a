"""A stand-in for `nvidia-smi`: a program on the PATH that answers echelon's two questions from two files."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

GIB = 1024  # nvidia-smi counts in MiB


class StandIn:
    """The GPUs of an imagined machine, and who computes on them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._gpus = folder / "gpus.csv"
        self._apps = folder / "apps.csv"
        program = folder / "nvidia-smi"
        program.write_text(
            textwrap.dedent(f"""\
            #!/bin/sh
            case "$1" in
                --query-gpu=index,uuid,name,memory.total,memory.used,utilization.gpu) cat {self._gpus} ;;
                --query-compute-apps=gpu_uuid,pid,process_name) cat {self._apps} ;;
                *) echo "unknown question: $*"; exit 2 ;;
            esac
            """)
        )
        program.chmod(0o755)
        self.show(0)

    def show(
        self,
        count: int,
        *,
        models: Sequence[str] = ("NVIDIA Imagined",),
        used: Sequence[int] = (0,),
        busy: Sequence[int] = (0,),
    ) -> None:
        """Have that many GPUs of 80 GiB; models, memory in use and per cent are repeated as often as it
        takes.
        """
        rows = [
            f"{index}, {uuid(index)}, {models[index % len(models)]}, {80 * GIB}, {used[index % len(used)]},"
            f" {busy[index % len(busy)]}"
            for index in range(count)
        ]
        self._gpus.write_text("".join(f"{row}\n" for row in rows))
        self.compute()

    def compute(self, *apps: tuple[int, int, str]) -> None:
        """Have these processes compute: (GPU, process id, program)."""
        rows = [f"{uuid(gpu)}, {pid}, {name}\n" for gpu, pid, name in apps]
        self._apps.write_text("".join(rows))


def uuid(index: int) -> str:
    """The name of a GPU that stays its own."""
    return f"GPU-{index:08x}-0000-1111-2222-333344445555"
