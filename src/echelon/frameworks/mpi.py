"""MPI: worker 0 runs the image's own `mpirun`, and the agents are its remote shell; there is no SSH.

All is said to mpirun by variables, so that a launcher of the user's that calls `mpirun prog` needs
nothing else: those of Open MPI 4 (OMPI_MCA_*), of Open MPI 5 (PRTE_MCA_*) and of MPICH and its relatives
(HYDRA_*) do not disturb each other. A command that does not call mpirun itself is started by it, each
rank through the agents' program, so that its lines and its end are known as those of any rank."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from echelon.agent.task import START_RANK
from echelon.model.plan import Launch
from echelon.model.world import World

_LAUNCHERS = ("mpirun", "mpiexec", "orterun", "prterun", "horovodrun")
_CALL = re.compile(rf"(?<![\w./-])(?:[\w./-]*/)?(?:{'|'.join(_LAUNCHERS)})(?:\.\w+)?(?![\w/-])")
_KILL_AFTER = "{grace}"  # seconds from mpirun's SIGTERM to its SIGKILL, as the agents give ranks
_FILES = {
    "hostfile": "{nodes}",
    "hosts.hydra": "{nodes:hydra}",
    "discover_hosts.sh": "{nodes:discover}",  # as in the pods of Kubeflow's MPIJobs, for elastic Horovod
}
_WIRING = {
    # For a launcher that takes no variable, such as horovodrun.
    "ECHELON_HOSTFILE": "{file:hostfile}",
    # Containers often run as root, and may not bind to CPUs that they do not know.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Every daemon is started from worker 0, where the remote shell is, and stays its child.
    "OMPI_MCA_plm_rsh_agent": "{ssh}",
    "OMPI_MCA_plm_rsh_no_tree_spawn": "1",
    "OMPI_MCA_orte_leave_session_attached": "1",
    "OMPI_MCA_orte_default_hostfile": "{file:hostfile}",
    "OMPI_MCA_orte_keep_fqdn_hostnames": "1",
    # Names of workers are in no DNS, and one that does not answer costs it seconds for each of them.
    "OMPI_MCA_if_base_do_not_resolve": "1",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_odls_base_sigkill_timeout": _KILL_AFTER,
    # A container may not read another process's memory; Open MPI 4 finds out by failing.
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    # Ranks may be more than CPUs, and must not keep each other from them while they wait.
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PRTE_MCA_plm_ssh_agent": "{ssh}",
    "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
    "PRTE_MCA_prte_leave_session_attached": "1",
    "PRTE_MCA_prte_default_hostfile": "{file:hostfile}",
    "PRTE_MCA_prte_keep_fqdn_hostnames": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "PRTE_MCA_odls_base_sigkill_timeout": _KILL_AFTER,
    "HYDRA_LAUNCHER": "ssh",
    "HYDRA_LAUNCHER_EXEC": "{ssh}",
    "HYDRA_HOST_FILE": "{file:hosts.hydra}",
    # Its daemons connect to this interface's address; a pod's name is unknown to other pods.
    "HYDRA_IFACE": "{interface}",
}


def launch(argv: Sequence[str], world: World, group: int) -> Launch:
    """The command, started by mpirun on all workers; one that is or calls mpirun starts as it is, once."""
    del group  # workers of every group serve the launcher
    ranks = sum(each.workers * each.procs for each in world.groups if each.role != "launcher")
    if calls_launcher(argv) or any(each.role == "launcher" for each in world.groups):
        return launch_once(argv)
    if ranks == 1:
        return Launch(argv=tuple(argv))  # MPI needs no launcher for one
    return launch_once(("mpirun", "-n", str(ranks), START_RANK, *argv))


def launch_once(argv: Sequence[str]) -> Launch:
    """A command that starts the ranks on all workers by itself."""
    return Launch(argv=tuple(argv), per="leader", wiring=_WIRING, files=_FILES)


def calls_launcher(argv: Sequence[str]) -> bool:
    """Whether a command is mpirun under one of its names, or has a shell call it."""
    name = PurePath(argv[0]).name
    if name.partition(".")[0] in _LAUNCHERS:
        return True
    return "-c" in argv[:-1] and _CALL.search(argv[argv.index("-c") + 1]) is not None


def source_calls_launcher(source: bytes) -> bool:
    """Whether a script calls mpirun: a Python script names it in a string that is not documentation, any
    other in a line that is not a comment.
    """
    return any(_CALL.search(text) for text in _code_of(source))


def _code_of(source: bytes) -> Iterator[str]:
    text = source.decode("utf-8", "replace")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        yield from (line for line in text.splitlines() if not line.lstrip().startswith("#"))
        return
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value
