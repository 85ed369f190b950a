"""What the dry run of a cluster says on one page."""

from __future__ import annotations

from dataclasses import replace

from tests.engines.kubernetes.rendered import Case, objects_of, planned

from echelon.bundle import Bundle
from echelon.bundle.withheld import Withheld
from echelon.engines.kubernetes.render.summary import summarize
from echelon.model.settings import Settings


def page(said: Settings, bundle: Bundle | None = None) -> str:
    case = Case(said=said)
    record, plan = planned(case)
    return summarize(record.job, plan, bundle, objects_of(case))


def test_everything_that_was_asked_for_is_on_it() -> None:
    text = page(
        Settings(
            script="train.py",
            args=["--lr", "1"],
            framework="torch",
            workers=2,
            gpus=1,
            memory="16Gi",
            image="my/torch",
            mount=["pvc:data/sets:/data:ro"],
            output="pvc:out/x",
            restarts=2,
            node_selector={"disktype": "ssd"},
            secret=["HF_TOKEN"],
        ),
        Bundle(
            digest="",
            data=bytes(2048),
            files=3,
            size=4096,
            withheld=(Withheld(path="data/", why=".gitignore"),),
        ),
    )
    lines = {
        line.split()[0]: " ".join(line.split()[1:]) for line in text.splitlines() if line.startswith(" ")
    }
    assert lines["code"] == "3 files, 4 KiB; 1 ignored by .gitignore; 2 KiB compressed"
    assert lines["stays"] == "here data/"
    assert lines["image"] == "my/torch"
    assert lines["results"] == "on a volume: pvc:out/x"
    assert lines["volume"] == "pvc:data/sets at /data, read only"
    assert lines["command"].endswith("train.py --lr 1")
    assert "nvidia.com/gpu 1" in lines["requests"]
    assert "memory 16Gi" in lines["requests"]
    assert lines["nodes"] == "node-a"
    assert lines["secrets"] == "HF_TOKEN"
    assert "1 Job" in lines["objects"]
    assert "-o yaml" in lines["objects"]
    assert "2 x worker" in text


def test_roles_have_lines_of_their_own() -> None:
    text = page(Settings(script="t.py", framework="tensorflow", image="a/b", workers=2, roles={"ps": 1}))
    assert "2 x worker" in text
    assert "1 x ps" in text
    assert "results      fetched to runs/x" in text


def test_where_checkpoints_are_kept() -> None:
    said = Settings(script="train.py", framework="torch", image="my/torch", checkpoints="ckpt")
    assert "checkpoints  of {output}/ckpt, kept while the run goes on" in page(said)
    assert "checkpoints" not in page(replace(said, output="pvc:out/x"))
