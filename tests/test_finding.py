"""Looking for a run in the place that was not asked for costs nothing when that place is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from echelon.errors import UnknownRun


def test_no_kubeconfig_is_no_trouble(home: Path) -> None:
    import echelon

    with pytest.raises(UnknownRun, match="no run named 'fm'"):
        echelon.attach("fm")


def test_a_cluster_that_does_not_answer_is_not_waited_for(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    import echelon
    from echelon import finding

    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections and says nothing
        config = tmp_path / "kubeconfig"
        config.write_text(
            f"""
            apiVersion: v1
            kind: Config
            current-context: c
            contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
            clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{silent.getsockname()[1]}"}}}}]
            users: [{{name: u, user: {{}}}}]
            """
        )
        monkeypatch.setenv("KUBECONFIG", str(config))
        monkeypatch.setattr(finding, "_PATIENCE", 0.2)
        with pytest.raises(UnknownRun, match="no run named 'fm'") as unknown:
            echelon.attach("fm")
        assert (
            "the cluster could not be asked: it has not answered within 0.2 s; `echelon ps -a`"
            in unknown.value.hint
        )

        from echelon.cli.attaching import attach_all, find_run_or_steps
        from echelon.notebook import removing

        def again(_look: object) -> None:
            raise AssertionError("it is asked again, for a pipeline of that name")

        monkeypatch.setattr(removing, "look_elsewhere", again)
        with pytest.raises(UnknownRun):
            find_run_or_steps("fm", {})
        assert isinstance(attach_all(("fm",), {})[1], UnknownRun)
