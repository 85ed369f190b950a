"""A PyTorchJob whose shell calls torchrun with the controller's variables, as manuals have it."""

from __future__ import annotations

_JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: elastic}
spec:
  nprocPerNode: "PROCS"
  elasticPolicy: {rdzvBackend: c10d}
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      restartPolicy: Never
      template:
        spec:
          containers:
            - name: pytorch
              image: IMAGE
              command: [sh, -c]
              args:
                - >-
                  torchrun --rdzv_id ${PET_RDZV_ID} --rdzv_backend ${PET_RDZV_BACKEND}
                  --rdzv_endpoint ${PET_RDZV_ENDPOINT} --nnodes ${PET_NNODES}
                  --nproc_per_node ${PET_NPROC_PER_NODE}
                  PROGRAM
              env: [{name: OMP_NUM_THREADS, value: "1"}]
              volumeMounts: [MOUNTS]
          volumes: [VOLUMES]
"""


def calling_torchrun(program: str, image: str, *, procs: int, volumes: dict[str, str]) -> str:
    """The job, two workers with `procs` ranks each. `volumes` are sources in YAML, by the paths where they
    are mounted.
    """
    mounts = ", ".join(f"{{name: v{number}, mountPath: {path}}}" for number, path in enumerate(volumes))
    sources = ", ".join(f"{{name: v{number}, {each}}}" for number, each in enumerate(volumes.values()))
    filled = {
        "PROCS": str(procs),
        "IMAGE": image,
        "PROGRAM": program,
        "[MOUNTS]": f"[{mounts}]",
        "[VOLUMES]": f"[{sources}]",
    }
    text = _JOB
    for word, value in filled.items():
        text = text.replace(word, value)
    return text
