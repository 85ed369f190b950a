"""Which cluster, as whom, where: the answers that kubectl gives."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.client.login.kubeconfig import in_cluster, kubeconfig_files, load_access
from echelon.errors import Unavailable

V1 = "client.authentication.k8s.io/v1"


def config(
    *names: str,
    current: str = "",
    server: str = "https://{}.example",
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    namespace: str = "",
) -> dict[str, Any]:
    """A kubeconfig with a context, a cluster and a user of each name."""
    place = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": n, "cluster": {"server": server.format(n)} | (cluster or {})} for n in names],
        "users": [{"name": n, "user": {"token": f"token-{n}"} if user is None else user} for n in names],
        "contexts": [{"name": n, "context": {"cluster": n, "user": n} | place} for n in names],
    } | ({"current-context": current} if current else {})


def write(path: Path, document: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(document))
    return path


def load(*files: Path, context: str | None = None, namespace: str | None = None) -> Access:
    return load_access(context, namespace, environment={"KUBECONFIG": os.pathsep.join(map(str, files))})


def test_the_current_context_is_used(tmp_path: Path) -> None:
    access = load(write(tmp_path / "config", config("red", "blue", current="blue", namespace="team")))
    assert (access.server, access.context, access.cluster, access.user) == (
        "https://blue.example",
        "blue",
        "blue",
        "blue",
    )
    assert (access.namespace, access.login.token, access.verify) == ("team", "token-blue", True)


def test_words_on_the_command_line_are_stronger(tmp_path: Path) -> None:
    access = load(
        write(tmp_path / "config", config("red", "blue", current="blue", namespace="team")),
        context="red",
        namespace="mine",
    )
    assert (access.context, access.namespace) == ("red", "mine")


def test_without_a_word_it_is_the_namespace_default(tmp_path: Path) -> None:
    assert load(write(tmp_path / "config", config("red", current="red"))).namespace == "default"


def test_of_several_files_the_first_entry_counts_whole(tmp_path: Path) -> None:
    first = config("red", server="https://first.example", user={})
    second = config("red", "blue", current="red", server="https://second.example", namespace="lost")
    third = config("green", current="green")
    files = [write(tmp_path / name, each) for name, each in (("a", first), ("b", second), ("c", third))]
    access = load(files[0], tmp_path / "not-there", *files[1:])
    assert (access.context, access.server) == ("red", "https://first.example")
    assert (access.login.token, access.namespace) == ("", "default")  # nothing of the second red is mixed in
    assert load(*files, context="blue").server == "https://second.example"


def test_empty_words_and_repeated_files_in_the_variable_are_nothing(tmp_path: Path) -> None:
    assert kubeconfig_files({"KUBECONFIG": f"{os.pathsep}a{os.pathsep}b{os.pathsep}a"}) == [
        Path("a"),
        Path("b"),
    ]
    assert kubeconfig_files({"KUBECONFIG": "", "HOME": str(tmp_path)}) == [tmp_path / ".kube" / "config"]


def test_paths_are_relative_to_their_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = {
        "client-certificate": "keys/me.crt",
        "client-key": "/elsewhere/me.key",
        "exec": {"apiVersion": V1, "command": "bin/login", "interactiveMode": "Never"},
    }
    write(
        tmp_path / "one" / "config",
        config("red", current="red", cluster={"certificate-authority": "ca.crt"}, user=user),
    )
    monkeypatch.chdir(tmp_path)
    access = load(Path("one") / "config")
    assert access.authority == str(tmp_path / "one" / "ca.crt")
    assert access.login.certificate == str(tmp_path / "one" / "keys" / "me.crt")
    assert access.login.key == "/elsewhere/me.key"
    assert access.login.plugin is not None
    assert access.login.plugin.command == str(tmp_path / "one" / "bin" / "login")


def test_a_plugin_without_a_slash_is_looked_up_in_the_path(tmp_path: Path) -> None:
    plugin = {
        "apiVersion": V1,
        "command": "aws",
        "interactiveMode": "IfAvailable",
        "args": ["eks"],
        "env": None,
    }
    access = load(write(tmp_path / "config", config("red", current="red", user={"exec": plugin})))
    assert access.login.plugin is not None
    assert (access.login.plugin.command, access.login.plugin.args) == ("aws", ("eks",))


def test_content_is_stronger_than_a_path(tmp_path: Path) -> None:
    data = base64.b64encode(b"PEM").decode()
    access = load(
        write(
            tmp_path / "config",
            config(
                "red",
                current="red",
                cluster={"certificate-authority": "ca.crt", "certificate-authority-data": data},
                user={"client-certificate-data": data, "client-key-data": data, "client-key": "me.key"},
            ),
        )
    )
    assert (access.authority, access.authority_data) == ("", b"PEM")
    assert (access.login.key, access.login.key_data) == ("", b"PEM")


def test_everything_a_cluster_entry_may_say(tmp_path: Path) -> None:
    cluster = {
        "server": "https://rancher.example/k8s/clusters/c-1/",
        "tls-server-name": "api.example",
        "insecure-skip-tls-verify": True,
        "proxy-url": "http://ann:pw@proxy:3128",
        "disable-compression": True,
    }
    user = {"as": "bob", "as-groups": ["x", "y"], "as-user-extra": {"a/b": ["c"]}, "tokenFile": "t"}
    access = load(write(tmp_path / "config", config("red", current="red", cluster=cluster, user=user)))
    assert access.server == "https://rancher.example/k8s/clusters/c-1"
    assert (access.server_name, access.verify, access.compress) == ("api.example", False, False)
    assert access.proxy == "http://ann:pw@proxy:3128"
    assert access.login.token_file == str(tmp_path / "t")
    assert access.login.act_as == (
        ("Impersonate-User", "bob"),
        ("Impersonate-Group", "x"),
        ("Impersonate-Group", "y"),
        ("Impersonate-Extra-a%2Fb", "c"),
    )


@pytest.mark.parametrize(
    ("cluster", "server"),
    [({}, "http://here:8080"), ({"insecure-skip-tls-verify": True}, "https://here:8080")],
)
def test_a_server_without_a_scheme(tmp_path: Path, cluster: dict[str, Any], server: str) -> None:
    path = write(tmp_path / "config", config("red", current="red", server="here:8080", cluster=cluster))
    assert load(path).server == server


def test_no_secret_is_printed(tmp_path: Path) -> None:
    secret = base64.b64encode(b"hush").decode()
    user = {
        "token": "hush",
        "client-certificate-data": secret,
        "client-key-data": secret,
        "exec": {
            "apiVersion": V1,
            "command": "x",
            "interactiveMode": "Never",
            "env": [{"name": "PASSWORD", "value": "hush"}],
        },
    }
    cluster = {"proxy-url": "http://ann:hush@proxy"}
    access = load(write(tmp_path / "config", config("red", current="red", cluster=cluster, user=user)))
    assert access.login.plugin is not None
    assert access.login.plugin.env == (("PASSWORD", "hush"),)
    assert "hush" not in repr(access)


BOTH = {"certificate-authority-data": "AAAA", "insecure-skip-tls-verify": True}


@pytest.mark.parametrize(
    ("document", "message", "hint"),
    [
        (config("red"), "no current context", "red"),
        (config("red", "blue", current="gone"), "no context 'gone'", "blue, red"),
        (config("red", current="red") | {"clusters": []}, "names cluster 'red'", "set-context"),
        (config("red", current="red") | {"users": []}, "names user 'red'", "set-context"),
        (config("red", current="red", server=""), "has no server", "kubeconfig"),
        (config("red", current="red", server="https://a:b"), "b, which is not an address", "HOST:PORT"),
        (config("red", current="red", server="ssh://a"), "not an address", "HOST:PORT"),
        (config("red", current="red", cluster=BOTH), "insecure-skip-tls-verify", "remove one"),
        (config("red", current="red", cluster={"certificate-authority-data": "é"}), "not base64", ""),
        (config("red", current="red", user={"client-key": "x"}), "only one of", "both"),
        (config("red", current="red", user={"token": "x", "username": "y"}), "both a token and", "remove"),
        (config("red", current="red", user={"auth-provider": {"name": "gcp"}}), "'gcp'", "gke-gcloud-auth"),
        (config("red", current="red", user={"auth-provider": {"name": "new"}}), "'new'", "exec plugin"),
        (config("red", current="red", user={"exec": {"command": "x"}}), "no apiVersion", "update"),
        (config("red", current="red", user={"exec": {"apiVersion": V1}}), "no command", ""),
        (config("red", current="red", user={"exec": {"apiVersion": V1, "command": "x"}}), "not set", "Never"),
        ([1, 2], "not a mapping", "KUBECONFIG"),
        ({"contexts": ["x"]}, "contexts is not a mapping", "KUBECONFIG"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, document: object, message: str, hint: str) -> None:
    with pytest.raises(Unavailable) as caught:
        load(write(tmp_path / "config", document))
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_what_is_no_yaml_is_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("users:\n- token: [hush\n  other: }")
    with pytest.raises(Unavailable) as caught:
        load(tmp_path / "config")
    assert "it is not YAML at line" in caught.value.message
    assert "hush" not in str(caught.value)


def test_an_older_plugin_needs_no_mode(tmp_path: Path) -> None:
    plugin = {"apiVersion": f"{V1}beta1", "command": "x"}
    access = load(write(tmp_path / "config", config("red", current="red", user={"exec": plugin})))
    assert access.login.plugin is not None
    assert access.login.plugin.mode == "IfAvailable"


def test_no_kubeconfig_at_all(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        load_access(environment={"HOME": str(tmp_path)})
    assert str(tmp_path / ".kube" / "config") in caught.value.message
    assert "KUBECONFIG" in caught.value.hint


def test_inside_a_pod(tmp_path: Path) -> None:
    for name, content in (("token", "hush\n"), ("ca.crt", "PEM"), ("namespace", "team\n")):
        (tmp_path / name).write_text(content)
    variables = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    inside = in_cluster(variables, folder=tmp_path)
    assert inside is not None
    assert (inside.server, inside.namespace) == ("https://10.0.0.1:6443", "team")
    assert (inside.authority, inside.login.token_file) == (str(tmp_path / "ca.crt"), str(tmp_path / "token"))
    assert in_cluster(variables, "mine", tmp_path).namespace == "mine"  # type: ignore[union-attr]
    other = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1"}, folder=tmp_path)
    assert other is not None
    assert other.server == "https://[fd00::1]:443"
    assert in_cluster({}, folder=tmp_path) is None
    assert in_cluster(variables, folder=tmp_path / "nothing") is None
