"""Logging in to real registries: passwords, tokens, TLS; and what is said when a right is missing."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.image.bases import Base, digest
from tests.image.registries import Registry
from tests.image.tokens import TokenService

from echelon.errors import Denied, Refused, Unreachable
from echelon.image.oci import Descriptor
from echelon.image.reference import parse_reference
from echelon.image.registry import transport
from echelon.image.registry.repository import Repository
from echelon.image.registry.transport import Challenge

pytestmark = pytest.mark.slow  # the registry may have to be built first

PASSWORD = "open sesame"
# bcrypt, the only kind that the registry takes; its cost is the lowest there is.
HTPASSWD = "ann:$2b$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy\n"
BLOB = b"a blob"
DESCRIBED = Descriptor(media_type="x", digest=digest(BLOB), size=len(BLOB))


@pytest.fixture
def log_in(nobody: Path) -> Callable[..., None]:
    """Write a login as `docker login` does."""

    def write(address: str, user: str, password: str = PASSWORD, **more: str) -> None:
        auth = base64.b64encode(f"{user}:{password}".encode()).decode()
        (nobody / "config.json").write_text(json.dumps({"auths": {address: {"auth": auth, **more}}}))

    return write


@pytest.fixture
def locked(start_registry: Callable[..., Registry], tmp_path: Path) -> Registry:
    """A registry that wants ann's password."""
    (tmp_path / "htpasswd").write_text(HTPASSWD)
    return start_registry(auth={"htpasswd": {"realm": "test", "path": str(tmp_path / "htpasswd")}})


@pytest.fixture
def governed(start_registry: Callable[..., Registry], token_service: TokenService) -> Registry:
    """A registry with a token service: ann may push to team/x and pull team/base, bob may only pull both."""
    token_service.users = {
        "ann": (PASSWORD, {"team/x": {"pull", "push"}, "team/base": {"pull", "push"}}),
        "bob": (PASSWORD, {"team/x": {"pull"}, "team/base": {"pull"}}),
        "": ("", {}),
    }
    token_service.identity_tokens = {"identity of ann": "ann"}
    return start_registry(auth=token_service.auth())


def push_blob(registry: Registry, name: str = "team/x", base: str = "") -> str:
    source = parse_reference("base", f"{registry.address}/{base}") if base else None
    repository = Repository(parse_reference("push", f"{registry.address}/{name}:1"), "push", base=source)
    try:
        repository.check_right()
        return repository.send(DESCRIBED, lambda: iter((BLOB,)))
    finally:
        repository.close()


def test_a_password(locked: Registry, log_in: Callable[..., None]) -> None:
    log_in(locked.address, "ann")
    assert push_blob(locked) == "sent"


def test_without_a_login_the_missing_right_and_the_way_to_it_are_named(locked: Registry) -> None:
    with pytest.raises(Denied) as caught:
        push_blob(locked)
    assert "you are not logged in" in caught.value.message
    assert "right to push" in caught.value.message
    assert f"docker login {locked.address}" in caught.value.hint


def test_a_wrong_password_names_whose_and_from_where(
    locked: Registry, log_in: Callable[..., None], nobody: Path
) -> None:
    log_in(locked.address, "ann", "open barley")
    with pytest.raises(Denied) as caught:
        push_blob(locked)
    assert f"login of ann from {nobody / 'config.json'}" in caught.value.message
    assert "barley" not in str(caught.value)


def test_a_token_with_the_rights_that_are_needed(
    governed: Registry, token_service: TokenService, log_in: Callable[..., None]
) -> None:
    log_in(governed.address, "ann")
    assert push_blob(governed) == "sent"
    assert token_service.requests == [("ann", ["repository:team/x:pull,push"])]


def test_a_layer_is_mounted_with_a_token_for_both_repositories(
    governed: Registry, token_service: TokenService, log_in: Callable[..., None]
) -> None:
    log_in(governed.address, "ann")
    push_blob(governed, "team/base")
    assert push_blob(governed, "team/x", base="team/base") == "mounted"
    assert token_service.requests[-1] == ("ann", ["repository:team/x:pull,push", "repository:team/base:pull"])


def test_an_identity_token_is_exchanged(
    governed: Registry, token_service: TokenService, log_in: Callable[..., None]
) -> None:
    log_in(governed.address, "ann", "", identitytoken="identity of ann")
    assert push_blob(governed) == "sent"
    log_in(governed.address, "ann", "", identitytoken="of nobody")
    with pytest.raises(Denied, match="does not accept the login of ann") as caught:
        push_blob(governed)
    assert "of nobody" not in str(caught.value)


def test_who_may_only_pull_is_told_which_right_is_missing(
    governed: Registry, log_in: Callable[..., None]
) -> None:
    log_in(governed.address, "bob")
    with pytest.raises(Denied) as caught:
        push_blob(governed)
    assert "bob" in caught.value.message
    assert f"lacks the right to push {governed.address}/team/x" in caught.value.message
    assert f"docker login {governed.address}" in caught.value.hint


def test_anybody_without_rights_is_told_to_log_in(governed: Registry) -> None:
    with pytest.raises(Denied, match="you are not logged in") as caught:
        push_blob(governed)
    assert f"docker login {governed.address}" in caught.value.hint


def test_a_login_that_the_token_service_does_not_know(
    governed: Registry, log_in: Callable[..., None]
) -> None:
    log_in(governed.address, "ann", "wrong")
    with pytest.raises(Denied, match=r"does not accept the login of ann.*wrong password"):
        push_blob(governed)


def test_a_token_that_grew_old_is_renewed(
    governed: Registry, token_service: TokenService, log_in: Callable[..., None]
) -> None:
    log_in(governed.address, "ann")
    token_service.lifetime = -3600
    repository = Repository(parse_reference("push", f"{governed.address}/team/x:1"), "push")
    with pytest.raises(Denied):
        repository.check_right()
    token_service.lifetime = 300
    assert repository.send(DESCRIBED, lambda: iter((BLOB,))) == "sent"
    assert [who for who, _ in token_service.requests] == ["ann", "ann"]
    repository.close()


def test_a_login_is_never_sent_in_plain_text_by_a_registry_with_tls() -> None:
    image = parse_reference("push", "registry.example.org/x")
    sending = transport.Transport(image, "push")
    with pytest.raises(Refused, match="in plain text"):
        sending._token(Challenge(scheme="bearer", realm="http://registry.example.org/token"), None)
    sending.close()


def test_tls_with_an_authority_that_is_named(
    start_registry: Callable[..., Registry], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*openssl, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    registry = start_registry(tls={"certificate": str(certificate), "key": str(key)})
    with pytest.raises(Unreachable, match="certificate verify failed") as caught:
        push_blob(registry)
    assert "SSL_CERT_FILE" in caught.value.hint
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert push_blob(registry) == "sent"


def test_a_registry_without_tls_elsewhere_is_not_talked_to_by_accident(
    start_registry: Callable[..., Registry], monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = start_registry()
    monkeypatch.setattr(transport, "is_loopback", lambda _registry: False)
    with pytest.raises(Unreachable) as caught:
        push_blob(registry)
    assert "--plain-http" in caught.value.hint
    image = parse_reference("push", f"{registry.address}/team/x:1")
    repository = Repository(image, "push", plain_http=True)
    repository.check_right()
    repository.close()


def test_a_public_base_needs_no_login(open_registry: Registry) -> None:
    base = Base(content=b"public")
    name = parse_reference("base", open_registry.push("test/public", "1", base))
    repository = Repository(name, "pull")
    assert repository.document("1")[0] == base.manifest
    repository.close()
