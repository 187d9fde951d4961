"""The parts of one dashboard: made from its settings, connected, started and closed, and their news for each other."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Self
from weakref import WeakValueDictionary

from dashboard.clock import AnchoredTime, Lease
from dashboard.cluster.guests import Guests
from dashboard.cluster.health import NodeHealth
from dashboard.cluster.installations import Installations
from dashboard.cluster.join_tokens import JoinTokens
from dashboard.cluster.preflights import Preflights
from dashboard.cluster.registry import IdleNodes, Lineage, NodeRegistry
from dashboard.cluster.slurm_jobs import SlurmJobs
from dashboard.live.hub import Hub, series_message
from dashboard.live.pubsub import DashboardPeers
from dashboard.private_files import make_private_directory
from dashboard.security.identity.access_tokens import AccessTokens
from dashboard.security.identity.identities import Identities
from dashboard.security.identity.last_uses import LastUses
from dashboard.security.identity.people import People
from dashboard.security.identity.sessions import Sessions
from dashboard.security.keys.token_files import Credentials
from dashboard.security.signing_in.device_logins import DeviceLogins
from dashboard.security.signing_in.known_addresses import known_addresses_in
from dashboard.security.signing_in.provider_settings import admission_of
from dashboard.security.turns import Turns
from dashboard.service.checkpoint_tasks import CheckpointTasks
from dashboard.service.compression import Compression
from dashboard.service.deletions import Deletions
from dashboard.service.disk_forecast import DiskForecast
from dashboard.service.live_attempts import Silence, SlowRanks
from dashboard.service.live_runs import LiveRuns
from dashboard.service.people_secrets import Secrets
from dashboard.service.references import References
from dashboard.service.retention import Retention
from dashboard.service.scheduler import Scheduler
from dashboard.service.store_opening import open_store
from dashboard.settings import DAY_S, Settings
from dashboard.snapshots.stored_snapshots import Snapshots
from dashboard.storage.checkpoint_storages import AbandonedImports, CheckpointStorages
from dashboard.storage.files import Files
from dashboard.storage.wheels import Wheels
from db.attempts import attempt_queries
from db.attempts.lost_nodes import LostNodes
from db.engine import Store
from db.models import Series
from db.nodes import node_queries, node_reports
from db.people import accounts, passwords
from db.scheduling import elastic
from db.studies.figures import Figures
from db.tasks.task_reports import Arrival
from db.trouble import Trouble, has_room
from domain.environments.wheels import Wants
from domain.messages import CheckAnswer
from domain.text.formats import MIB
from domain.views import NodeView


class Parts:
    """The parts of one dashboard, by their names; safe to use from any thread."""

    def __init__(self, settings: Settings, store: Store, clock: AnchoredTime | None = None) -> None:
        self.settings, self.store, self.clock = settings, store, clock or AnchoredTime()
        self.port = settings.port
        """The port that is actually listened on, once the server runs."""
        self.lease = Lease(self.clock(), node_queries.last_word(store) or 0.0)
        self.hub = Hub()
        self.idle_nodes = IdleNodes(self.clock.time)
        self.hub.nodes_of = partial(node_reports.nodes_of_runs, store)
        self.hub.on_desired_state = self.idle_nodes.forget
        name = "" if store.is_sqlite else f"-{_name_of(settings.data)}"
        self.files = Files(settings.files_directory, settings.reserve_bytes, name)
        limit_bytes = int(settings.snapshot_limit_mb * MIB)
        self.snapshots = Snapshots(store, self.files.root / "snapshots", limit_bytes, self.clock, name)
        self.storages = CheckpointStorages(store, self.files, settings.checkpoints_url, self.clock)
        self.abandoned_imports = AbandonedImports(store, self.clock)
        kept_days = settings.keep_deleted_days
        self.wheels, self.wanted_wheels = Wheels(settings.data / "wheels", self.clock.time), Wants()
        self.deletions = Deletions(store, self.files, self.snapshots, self.wheels, self.hub, self.clock, kept_days)
        self.retention = Retention(store, self.files, self.hub, self.clock, kept_days)
        self.compression = Compression(store, self.files, self.clock)
        self.disk_forecast = DiskForecast(store, self.files, self.clock)
        self.credentials = Credentials.load_or_create(settings.data, settings.join_token_file)
        self.identities = Identities(store, self.clock)
        self.identities.on_change = self.hub.wake_viewers
        visits = LastUses(lambda visits: accounts.saw(store, visits), self.clock)
        self.sessions = Sessions(store, self.credentials, self.clock, settings.session_days * DAY_S, visits)
        self.secrets = Secrets(store, settings.secret_key_file or settings.data / "secret-key", self.clock)
        self.references = References(store, self.snapshots, self.secrets)
        self.access_tokens = AccessTokens(store, self.identities, self.clock, visits)
        self.hashing = Turns(passwords.AT_ONCE, passwords.MOST_WAITING)
        """Turns at hashing passwords."""
        self.people = People(
            store, self.clock, self.identities, self.sessions, self.access_tokens, self.hashing, admission_of(settings)
        )
        self.known_addresses = known_addresses_in(store, self.clock)
        self.device_logins = DeviceLogins(store, self.known_addresses, self.clock)
        self.join_tokens = JoinTokens(store, self.clock)
        self.registry = NodeRegistry(store, self.clock)
        self.lineage = Lineage(store, self.clock)
        self.checkpoint_tasks = CheckpointTasks(store, self.clock, self.hub, self.files, self.credentials)
        self.preflights = Preflights(store, self.clock, self.hub.desired_state_changed)
        self.health = NodeHealth(store, self.clock, self.hub.desired_state_changed, self.node, self.schedule)
        self.installations = Installations(self.clock)
        self.figures = Figures(store)
        self.uploads = WeakValueDictionary[int, object]()
        """The request that is uploading each checkpoint, by the checkpoint's id, for as long as it lives."""
        self._run_of_fence: dict[int, str] = {}
        self.live_runs = LiveRuns()
        self.on_live_runs: Callable[[Set[str]], None] = lambda _: None
        """Called once a second with the ids of the runs that are live, on whatever node."""
        self.silence = Silence(store, self.hub, self.run_changed, self.leads)
        self.slow_ranks = SlowRanks(store, self.run_changed, self.leads)
        self.lost_nodes = LostNodes()
        self.check_disk_space()
        self.jobs = SlurmJobs(store, self.clock, self.hub, self.credentials, self.task_changed)
        self.guests = Guests(store, self.clock, self.registry.forget)
        self.scheduler = Scheduler(
            store, self.clock, self.registry, self.jobs, settings.lost_after_s, self.runs_changed
        )
        self.peers = None if store.is_sqlite else self._peers()

    @classmethod
    def open(cls, settings: Settings, *, new_store: bool = False, clock: AnchoredTime | None = None) -> Self:
        """Open the data directory and its store; creates them where there never was a store. Raises StoreUnusable."""
        make_private_directory(settings.data)
        return cls(settings, open_store(settings, new_store=new_store), clock)

    def start(self) -> None:
        """Start the hub and the channel to other dashboards; call it inside the event loop that serves."""
        self.hub.start()
        if self.peers is not None:
            self.peers.start()

    def close(self) -> None:
        """Stop background work and close the store."""
        self.hub.close()
        if self.peers is not None:
            self.peers.close()
        self.storages.close()
        if self.store.trouble is None:
            self.access_tokens.write_down(at_once=True)
        self.store.close()

    def _peers(self) -> DashboardPeers:
        peers = DashboardPeers(self.store, self.hub, self.clock.time)
        peers.on_run = self.live_runs.forget
        peers.on_node = self.registry.forget
        self.hub.peers = peers
        return peers

    def leads(self) -> bool:
        """Whether this dashboard records what all of them observe, and carries out studies."""
        return (self.peers is None or self.peers.leads) and self.store.trouble is None

    def now_for_contact(self) -> float:
        """The time by which silence is judged."""
        return self.lease.judging_time(self.clock())

    def check_disk_space(self) -> bool:
        """Check whether the disk has free space, and remember it."""
        self._has_disk_space = has_room(self.files.root)
        return self._has_disk_space

    @property
    def trouble(self) -> Trouble | None:
        """Why the server cannot store anything at the moment; None when it can."""
        return self.store.trouble or (None if self._has_disk_space else Trouble.FULL)

    def node(self, node_id: str) -> NodeView:
        """The node of an id that the store just gave, also one of a Slurm job that is over."""
        now, lost_after_s = self.now_for_contact(), self.settings.lost_after_s
        return next(node for node in node_queries.nodes(self.store, now, lost_after_s, node_id) if node.id == node_id)

    # News of one part for the others.

    def schedule(self) -> None:
        """Allocate free devices to queued runs, and notify everybody concerned; on return it has been done."""
        self.scheduler.schedule()

    def schedule_in_turn(self) -> None:
        """Schedule after a report, of which many may come at once; if scheduling is slow, a later tick does it."""
        self.scheduler.schedule_in_turn()

    def run_changed(self, run_id: str) -> None:
        """Notify the run's viewers that something about it has changed."""
        self.live_runs.forget(run_id)
        self.hub.publish(run_id, {"type": "run"})
        self.hub.publish(run_id, {"type": "history"})

    def runs_changed(self, run_ids: Sequence[str]) -> None:
        """Notify the nodes and the viewers of runs that the program has placed, resized or ended."""
        if run_ids:
            self.hub.desired_state_of_runs_changed(run_ids)
        for run_id in run_ids:
            self.run_changed(run_id)

    def check_answered(self, node_id: str, check_id: int, check_answer: CheckAnswer) -> None:
        """Take a node's answer to one stage of a preflight."""
        for run_id in self.preflights.answered(node_id, check_id, check_answer):
            self.run_changed(run_id)

    def task_changed(self, fence: int) -> None:
        """Handle a worker's report: its run's desired state may change, devices may be free."""
        run_id = self.run_of(fence)
        if run_id is not None:
            self.hub.desired_state_of_runs_changed([run_id])
        self.schedule_in_turn()
        if run_id is not None:
            self.run_changed(run_id)

    def checkpoint_stored(self, run_id: str, checkpoint_id: int) -> None:
        """Handle a complete checkpoint: its run's rule may let others go, an elastic run may continue elsewhere."""
        self.retention.judge_soon([run_id])
        self.hub.publish(run_id, {"type": "checkpoints"})
        self.hub.publish(run_id, {"type": "history"})
        now, settings = self.clock(), self.settings
        if elastic.resize_at_checkpoint(self.store, checkpoint_id, now, settings.grow_after_s, settings.lost_after_s):
            self.hub.desired_state_of_runs_changed([run_id])
            self.run_changed(run_id)

    def points_arrived(self, arrival: Arrival, source: str, node_rank: int) -> None:
        """Send new points to the pages that are open on their run, at every dashboard."""
        if arrival.stored and self.peers is not None:
            self.peers.points_arrived(arrival.run_id)
        elif arrival.stored and self.hub.watched(arrival.run_id):
            rows = {tag: Series(tag=tag, source=source, node_rank=node_rank) for tag in arrival.series}
            changes = [(rows[tag], points, tag in arrival.begun) for tag, points in arrival.series.items()]
            self.hub.publish(arrival.run_id, series_message(arrival.attempt, changes))

    def token_ended(self, node_id: str) -> None:
        """Have every dashboard refuse a node's earlier token."""
        if self.peers is not None:
            self.peers.announce_registration(node_id)

    def file_grew(self, fence: int) -> None:
        """Notify viewers that bytes of a log or event file arrived."""
        if run_id := self.run_of(fence):
            self.hub.publish(run_id, {"type": "log"})

    def run_of(self, fence: int) -> str | None:
        """The id of the run that an attempt belongs to."""
        if fence not in self._run_of_fence and (run_id := attempt_queries.run_of_attempt(self.store, fence)):
            self._run_of_fence[fence] = run_id
        return self._run_of_fence.get(fence)


def _name_of(data: Path) -> str:
    """A name for each of several dashboards that share a folder; stable across restarts."""
    return hashlib.sha256(f"{socket.gethostname()}:{data}".encode()).hexdigest()[:8]
