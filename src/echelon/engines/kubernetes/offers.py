"""What the engine offers beside its verbs: its abilities, each imported when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from echelon.engines.kubernetes.abilities import cluster
from echelon.engines.kubernetes.follow import view as views
from echelon.engines.machine import Submissions
from echelon.model.engine.traits import Where

if TYPE_CHECKING:
    from echelon.engines.kubernetes.abilities.applying import ClusterManifests
    from echelon.engines.kubernetes.abilities.ports import PodPorts
    from echelon.engines.kubernetes.abilities.samples import PodSampling
    from echelon.engines.kubernetes.abilities.shell import PodShell
    from echelon.engines.kubernetes.abilities.shipped import ShippedRuns
    from echelon.engines.kubernetes.client.api import Api
    from echelon.engines.kubernetes.files.sent_code import SentCode
    from echelon.engines.kubernetes.notebook.servers import PodNotebooks
    from echelon.engines.kubernetes.queue.looking import ClusterQueue


class Offers:
    """The abilities of one namespace of one cluster."""

    _submissions: Submissions

    @cached_property
    def api(self) -> Api:
        """The way to the cluster."""
        raise NotImplementedError

    @property
    def where(self) -> Where:
        """The context, which the kubeconfig may have chosen, and the namespace."""
        return Where(context=self.api.access.context, namespace=self.api.namespace)

    @cached_property
    def ports(self) -> PodPorts:
        """Ports of workers, on this machine."""
        from echelon.engines.kubernetes.abilities.ports import PodPorts

        return PodPorts(lambda: self.api)

    @cached_property
    def shell(self) -> PodShell:
        """Commands in the place of a rank."""
        from echelon.engines.kubernetes.abilities.shell import PodShell

        return PodShell(lambda: self.api)

    @cached_property
    def delivery(self) -> SentCode:
        """Code that is sent when the leader has started."""
        from echelon.engines.kubernetes.files.sent_code import SentCode

        return SentCode(lambda: self.api, self._submissions)

    @cached_property
    def shipping(self) -> ShippedRuns:
        """What was shipped for runs."""
        from echelon.engines.kubernetes.abilities.shipped import ShippedRuns

        return ShippedRuns(lambda: self.api, self._submissions)

    @cached_property
    def volumes(self) -> cluster.ClusterVolumes:
        """The claims of the namespace."""
        return cluster.ClusterVolumes(lambda: self.api)

    @cached_property
    def checkup(self) -> cluster.ClusterCheckup:
        """Whether runs would work here."""
        return cluster.ClusterCheckup(lambda: self.api)

    @cached_property
    def usage(self) -> cluster.ClusterMeter:
        """Who uses the cluster."""
        return cluster.ClusterMeter(lambda: self.api)

    @cached_property
    def sampling(self) -> PodSampling:
        """What the ranks of a run use."""
        from echelon.engines.kubernetes.abilities.samples import PodSampling

        return PodSampling(lambda: self.api)

    @cached_property
    def queueing(self) -> ClusterQueue:
        """The queue of the cluster."""
        from echelon.engines.kubernetes.queue.looking import ClusterQueue

        return ClusterQueue(lambda: self.api)

    @cached_property
    def manifests(self) -> ClusterManifests:
        """Objects beside a job."""
        from echelon.engines.kubernetes.abilities.applying import ClusterManifests

        return ClusterManifests(lambda: self.api)

    @property
    def programs(self) -> None:
        """Nothing: what runs other runs is on the user's machine."""

    @cached_property
    def notebooks(self) -> PodNotebooks:
        """Jupyter servers of users."""
        from echelon.engines.kubernetes.notebook.servers import PodNotebooks

        return PodNotebooks(lambda: self.api)

    def names(self) -> Sequence[str]:
        """The names of the namespace's runs, from one list."""
        return views.run_names(self.api)

    def platforms(self) -> frozenset[str]:
        """The operating systems and processors of the nodes."""
        return cluster.read_platforms(self.api)
