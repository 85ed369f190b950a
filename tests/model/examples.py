"""Of every setting, what can be given of it."""

from __future__ import annotations

from typing import Any

from echelon.jobfile import settings_from
from echelon.model.pods.template import CONTAINER
from echelon.model.settings import Settings

OF_A_COMMAND = {
    "sweep", "replace", "force", "dry_run", "format", "on", "context", "namespace",
    "pod_patch",  # its file is read when the job is prepared
    "python",  # found anew by every run
}  # fmt: skip
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "name": [{"name": "other"}],
    "script": [{"script": "/home/ann/train.py"}],
    "module": [{"script": None, "module": "pkg.train"}],
    "command": [
        {"script": None, "command": ["echo", "a b"]},
        {"script": None, "command": "echo 'a b' {output}"},
    ],
    "args": [{"args": ["--lr", "0.1", "yes", 7, 1e-3]}],
    "workers": [{"workers": 2}, {"workers": "2..8"}],
    "settle": [{"workers": "2..8", "settle": "30s"}],
    "procs": [{"procs": 3}, {"gpus": 2, "procs": 1}, {"gpus": 2, "procs": 2}],
    "gpus": [{"gpus": 2}, {"gpus": 2, "workers": 3}],
    "gpu_type": [{"gpus": 1, "gpu_type": "H100"}, {"total_gpus": 4, "gpu_type": "H100"}],
    "total_gpus": [
        {"total_gpus": 4},
        {"total_gpus": "4..8"},
        {"total_gpus": 8, "gpus": 2},
        {"total_gpus": 8, "workers": 2},
        {"total_gpus": 4, "procs": 2},
        {"total_gpus": 4, "gpus": 2, "procs": 2},
        {"total_gpus": 8, "gpus": 2, "cpus": "2:4", "memory": "1Gi"},
    ],
    "shares": [{"total_gpus": 4, "shares": "any"}, {"total_gpus": 4, "shares": "equal"}],
    "cpus": [
        {"cpus": 2},
        {"cpus": "500m"},
        {"cpus": "0.5:2"},
        {"total_gpus": 4, "cpus": "1.5/gpu"},
        {"total_gpus": 4, "gpus": 2, "cpus": "1500m/gpu", "memory": "2Gi"},
    ],
    "memory": [{"memory": "16Gi"}, {"memory": "1.5Gi:2Gi"}, {"total_gpus": 4, "memory": "32Gi/gpu"}],
    "resource": [{"resource": {"rdma/ib": 1}}],
    "roles": [
        {"roles": {"ps": 2}},
        {"gpus": 2, "memory": "1Gi", "resource": {"a/b": 1}, "roles": {"chief": 1, "ps": 1}},
        {"gpus": 2, "gpu_type": "A100", "roles": {"evaluator": {"gpus": 0, "args": []}}},
        {
            "roles": {
                "ps": {
                    "workers": 2,
                    "procs": 3,
                    "gpus": 1,
                    "cpus": 1,
                    "memory": "1Gi",
                    "command": "serve --name 'a b'",
                    "args": ["--port", 7],
                    "env": {"N": 1},
                    "image": "my/server:2",
                    "template": {"spec": {"hostNetwork": True}},
                }
            }
        },
    ],
    "framework": [{"framework": "torch"}],
    "env": [{"env": {"A": 1, "B": "x: y"}}],
    "secret": [{"secret": ["TOKEN", "KEY=@/home/ann/key.txt"]}],
    "restarts": [{"restarts": 3}],
    "timeout": [{"timeout": "90m"}, {"timeout": 0.5}],
    "grace": [{"grace": "2m"}],
    "stall": [{"stall": "10m"}],
    "priority": [{"priority": -2}],
    "queue_timeout": [{"queue_timeout": "12h"}],
    "results": [{"results": "/home/ann/results"}],
    "reuse_results": [{"reuse_results": True}],
    "snapshot": [{"snapshot": True}],
    "include": [{"include": ["data/*"]}],
    "metric_pattern": [{"metric_pattern": [r"loss=(?P<loss>\S+)"]}],
    "track": [{"track": "mlflow"}, {"track": "none"}],
    "no_wait": [{"no_wait": True}],
    "image": [{"image": "my/torch:2"}],
    "pull": [{"pull": "always"}, {"pull": "missing"}],
    "pull_secret": [{"pull_secret": ["one", "two"]}],
    "mount": [
        {"mount": ["pvc:data/sub:/data:ro", "emptydir::/scratch", "emptydir:1Gi:/more", "configmap:c:/c"]},
        {"mount": ["nfs:host:/export:/mnt", "hostPath:/a:/b", "secret:s:/s"]},
    ],
    "code": [{"code": "pvc:shelf/project"}, {"code": "pvc:shelf"}, {"code": "image"}],
    "code_volume": [{"code_volume": "pvc:shelf/a/b"}],
    "pip": [{"pip": ["numpy"]}],
    "requirements": [{"requirements": "/home/ann/requirements.txt"}],
    "output": [
        {"output": "pvc:work/out"},
        {"output": "pvc:work"},
        {"output": "new:"},
        {"output": "new:1Gi@fast"},
        {"output": "new:@fast"},
    ],
    "linger": [{"linger": "1m"}, {"linger": 0}],
    "keep": [
        {"gpus": 1, "keep": "3d"},
        {"gpus": 1, "keep": 0},
        {"gpus": 1, "keep": "1h:5Gi"},
        {"gpus": 1, "keep": "24h:1Gi"},
        {"gpus": 1, "keep": "1h:0"},
        {"keep": "1h"},
        {"keep": "1h", "output": "pvc:a", "checkpoints": "ckpt"},
        {"detach": True, "keep": "1h"},
        {"detach": True, "keep": "1h:0"},
    ],
    "keep_size": [{"gpus": 1, "keep_size": "1Gi"}],
    "detach": [{"detach": True}, {"detach": True, "secret": ["TOKEN"]}],
    "checkpoints": [{"checkpoints": "{output}/ckpt"}, {"checkpoints": "ckpt", "output": "pvc:a"}],
    "collect": [{"collect": ["/logs"]}],
    "shm": [{"shm": "1Gi"}],
    "node_selector": [{"node_selector": {"zone": "a"}}],
    "toleration": [{"toleration": ["gpu", "team=a:NoSchedule", "empty=", "x:NoExecute"]}],
    "service_account": [{"service_account": "trainer"}],
    "priority_class": [{"priority_class": "high"}],
    "job_kind": [{"job_kind": "pytorchjob"}],
    "local_queue": [{"local_queue": "team"}],
    "scale_up": [{"scale_up": True}],
    "ttl": [{"ttl": "2d"}, {"ttl": "7d", "detach": True, "secret": ["TOKEN"]}],
    "label": [{"label": {"team": "a", "n": 1}}],
    "annotation": [{"annotation": {"cost": "1"}}],
    "template": [{"template": {"spec": {"containers": [{"name": CONTAINER, "tty": True}]}}}],
}
"""Of every setting, what can be given of it, with what it needs beside it."""


def settings_of(example: dict[str, Any]) -> Settings:
    given = {"name": "fm", "script": "/home/ann/train.py", **example}
    return settings_from(given, source="a test")
