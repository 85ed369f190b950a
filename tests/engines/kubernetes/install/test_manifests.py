"""The objects of `echelon install`: least rights, and what Pod Security's strictest level asks for."""

from __future__ import annotations

from typing import Any

from echelon.engines.kubernetes.dispatch.rules import read_rules
from echelon.engines.kubernetes.install.manifests import render


def found(kind: str, name: str = "echelon-manager") -> dict[str, Any]:
    return next(
        each for each in render("reg/me@sha256:1") if (each["kind"], each["metadata"]["name"]) == (kind, name)
    )


def test_the_manager_makes_and_deletes_nothing_and_reads_no_secret() -> None:
    rules = [rule for each in render("x") for rule in each.get("rules", ())]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "patch"}
    named = {resource for rule in rules for resource in rule["resources"]}
    assert "secrets" not in named
    assert "*" not in named
    assert "pods/exec" not in named
    patched = [rule["resources"] for rule in found("ClusterRole")["rules"] if "patch" in rule["verbs"]]
    assert patched == [["pods/status"], ["jobs"]]


def test_everybody_may_see_that_a_manager_runs_and_nothing_else() -> None:
    role, binding = found("Role", "echelon-manager-visible"), found("RoleBinding", "echelon-manager-visible")
    assert role["rules"] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["echelon-manager"],
            "verbs": ["get"],
        }
    ]
    assert [each["name"] for each in binding["subjects"]] == ["system:authenticated"]


def test_the_pods_are_as_the_strictest_level_wants_them() -> None:
    spec = found("Deployment")["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["replicas"] == 2
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
    assert container["image"] == "reg/me@sha256:1"
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert {"livenessProbe", "readinessProbe"} <= container.keys()
    assert found("Namespace", "echelon-system")["metadata"]["labels"][
        "pod-security.kubernetes.io/enforce"
    ] == ("restricted")


def test_the_rules_that_are_installed_can_be_read() -> None:
    read_rules(found("ConfigMap", "echelon-queue"))
