"""The address of the leader's own pod, asked of the cluster's name server: it is known there sooner than the
Service's address leads to it, for kube-proxy looks once a second by default.

A name server that is asked too early remembers for 5 to 30 seconds that there is no such name. CoreDNS does
so for each kind of question by itself: type A or SRV, with and without the bits CD and DO. So there are eight
questions, and each is asked once. Nothing depends on their answers: the Service leads to the leader soon."""

from __future__ import annotations

import os
import socket
import struct

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

RESOLVER = "/etc/resolv.conf"
MOMENTS = (0.0, 0.06, 0.13, 0.22, 0.33, 0.48, 0.7, 1.0)  # seconds after the first attempt to connect
_PORT = 53
_TIMEOUT = 0.2  # seconds; the agent does nothing else meanwhile
_A, _AAAA, _SRV, _INTERNET, _OPTIONS = 1, 28, 33, 1, 41
_RECURSION, _CD, _DO = 0x0100, 0x0010, 0x8000
_KINDS = [(kind, cd, do) for kind in (_A, _SRV) for cd in (0, _CD) for do in (0, _DO)]
_HEADER = struct.Struct("!6H")
_RECORD = struct.Struct("!2HIH")
_LARGEST = 4096


class Garbled(Exception):
    """An answer is not one."""


class Lookup:
    """Looks for the pod with this name (`POD.SERVICE`); without a name, it finds nothing."""

    def __init__(self, pod: Optional[str]) -> None:
        self._pod = pod
        self._asked = 0
        self._found: Optional[str] = None

    @property
    def goes_on(self) -> bool:
        """Whether the address is known, or there are questions left."""
        return self._found is not None or (self._pod is not None and self._asked < len(MOMENTS))

    def address(self, waited: float) -> Optional[str]:
        """The pod's address; None if it is not known after so many seconds."""
        if self._found is None and self.goes_on and waited >= MOMENTS[self._asked]:
            self._found = find_pod(str(self._pod), self._asked)
            self._asked += 1
        return self._found

    def end(self) -> None:
        """Forget what was found: it leads nowhere, or is known no longer to be right."""
        self._pod = self._found = None


def find_pod(pod: str, number: int) -> Optional[str]:
    """The address of a pod by the question with this number; None if there is no answer in time, or this is
    no pod of a cluster.
    """
    try:
        with open(RESOLVER, encoding="utf-8", errors="replace") as file:
            server, domain = read_resolver(file.read())
        if server is None or domain is None:
            return None
        found = _ask("%s.%s" % (pod, domain), number, server)
    except (OSError, Garbled):
        return None
    return found[0] if found else None


def read_resolver(text: str) -> Tuple[Optional[str], Optional[str]]:
    """The name server, and the domain of the namespace's Services, from the text of `resolv.conf`."""
    server, domain = None, None
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["nameserver"] and len(words) > 1:
            server = server or words[1]
        elif words[:1] == ["search"]:
            domain = next((each for each in words[1:] if each.split(".")[1:2] == ["svc"]), None)
    return server, domain


def question(name: str, number: int, identity: int) -> bytes:
    """The question with this number for a name."""
    kind, cd, do = _KINDS[number]
    labels = [label.encode("ascii") for label in name.rstrip(".").split(".")]
    asked = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    header = _HEADER.pack(identity, _RECURSION | cd, 1, 0, 0, 1 if do else 0)
    options = b"\0" + _RECORD.pack(_OPTIONS, _LARGEST, do, 0) if do else b""
    return header + asked + struct.pack("!2H", kind, _INTERNET) + options


def addresses_in(answer: bytes, identity: int) -> List[str]:
    """The addresses in an answer; raises Garbled."""
    found = []
    try:
        got, _, questions, *records = _HEADER.unpack_from(answer)
        if got != identity:
            raise Garbled
        at = _HEADER.size
        for _ in range(questions):
            at = _after_name(answer, at) + 4
        for _ in range(sum(records)):
            at = _after_name(answer, at)
            kind, _, _, length = _RECORD.unpack_from(answer, at)
            at += _RECORD.size
            data = answer[at : at + length]
            if kind == _A and len(data) == 4:
                found.append(socket.inet_ntop(socket.AF_INET, data))
            elif kind == _AAAA and len(data) == 16:
                found.append(socket.inet_ntop(socket.AF_INET6, data))
            at += length
    except (struct.error, IndexError) as error:
        raise Garbled from error
    return found


def _ask(name: str, number: int, server: str) -> List[str]:
    identity = int.from_bytes(os.urandom(2), "big")
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asking:
        asking.settimeout(_TIMEOUT)
        asking.connect((server, _PORT))
        asking.send(question(name, number, identity))
        return addresses_in(asking.recv(_LARGEST), identity)


def _after_name(answer: bytes, at: int) -> int:
    """Where what follows a name begins: after its last label, or a reference to an earlier name."""
    while answer[at]:
        if answer[at] >= 0xC0:
            return at + 2
        at += 1 + answer[at]
    return at + 1
