"""The state shared by the API and the pages: the open store, the clock, and the actions that people may request."""

from __future__ import annotations

import hashlib
import logging
import socket
from collections.abc import Callable, Sequence, Set
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from dashboard.clock import Clock, Lease
from dashboard.cluster.health import NodeHealth
from dashboard.cluster.installations import Installations
from dashboard.cluster.join_tokens import JoinTokens
from dashboard.cluster.joining import Listening, outward_address
from dashboard.cluster.preflights import Preflights
from dashboard.cluster.registry import IdleNodes, Lineage, NodeRegistry
from dashboard.cluster.slurm_jobs import SlurmJobs
from dashboard.json_responses import text_of
from dashboard.live.hub import Hub, series_message
from dashboard.live.pubsub import DashboardPeers
from dashboard.planning import environments, interpreters
from dashboard.planning.fixes import with_next_step
from dashboard.planning.resolve import ClusterNodes, Resolved, check_target, resolve
from dashboard.private_files import keep_spare, make_private_directory
from dashboard.script_reader import targets
from dashboard.security.identity.access_tokens import AccessTokens
from dashboard.security.identity.identities import Identities
from dashboard.security.identity.last_uses import LastUses
from dashboard.security.identity.people import People
from dashboard.security.identity.sessions import Sessions
from dashboard.security.keys import certificates
from dashboard.security.keys.token_files import Credentials
from dashboard.security.signing_in.device_logins import DeviceLogins
from dashboard.security.signing_in.known_addresses import known_addresses_in
from dashboard.security.signing_in.provider_settings import admission_of
from dashboard.security.turns import Turns
from dashboard.service.deletions import Deletion, Deletions
from dashboard.service.live_attempts import Silence, SlowRanks
from dashboard.service.live_runs import LiveRuns
from dashboard.service.references import References
from dashboard.service.scheduler import Scheduler
from dashboard.service.secrets import Secrets
from dashboard.service.store_opening import open_store
from dashboard.settings import DAY_S, MIB, Settings
from dashboard.snapshots.bringing import PackedCode
from dashboard.snapshots.keeping import Snapshots
from dashboard.storage.checkpoint_storages import AbandonedImports, CheckpointStorages
from dashboard.storage.conversions import Conversions
from dashboard.storage.files import Files
from dashboard.storage.wheels import Wheels
from db import acting
from db.attempts import attempt_queries, deliveries
from db.attempts.lost_nodes import LostNodes
from db.checkpoints import checkpoint_requests
from db.engine import Store
from db.exceptions import NoSuchRun
from db.lookups import latest_attempt
from db.models import Series
from db.nodes import node_queries, node_reports, node_requests
from db.nodes.node_reports import Claim, RegisteredNode
from db.people import accounts, passwords
from db.people.ownership import owned_run, project_of
from db.ranks import profiles, ranks
from db.runs import run_queries, run_requests
from db.runs.run_requests import NewTrial, StudyPoint
from db.scaling.studies import Figures
from db.scheduling import elastic
from db.tasks import desired_state
from db.tasks.task_reports import Arrival
from db.trouble import Trouble, has_room
from domain.assignments import Assignment
from domain.choices import RUN_ID
from domain.environments.wheels import Wants
from domain.masking.masking import has_mask, masked_text, unmasked_spec
from domain.messages import CheckAnswer, NodeFacts
from domain.people.removal import RunsOfRemoved
from domain.people.rights import PROGRAM, Denied
from domain.people.roles import Action
from domain.profiles.views import ProfileView, cost_sentence, latest_cost
from domain.requests.errors import InvalidRequest
from domain.spec import RunEdit, RunSpec, check_size, checked_reason
from domain.views import NodeView, RunView, StacksView


class Service:
    """One dashboard's state; safe to use from any thread."""

    def __init__(self, settings: Settings, store: Store, clock: Clock | None = None) -> None:
        self.settings, self.store, self.clock = settings, store, clock or Clock()
        self.port = settings.port
        """The port that is actually listened on, once the server runs."""
        self.lease = Lease(self.clock(), node_queries.last_word(store) or 0.0)
        self.hub = Hub()
        self.idle_nodes = IdleNodes()
        self.hub.nodes_of = partial(node_reports.nodes_of_runs, store)
        self.hub.on_desired_state = self.idle_nodes.forget
        name = "" if store.is_sqlite else f"-{_name_of(settings.data)}"
        self.files = Files(settings.files_directory, settings.reserve_bytes, name)
        limit_bytes = int(settings.snapshot_limit_mb * MIB)
        self.snapshots = Snapshots(store, self.files.root / "snapshots", limit_bytes, self.clock, name)
        self.storages = CheckpointStorages(store, self.files, settings.checkpoints_url, self.clock)
        self.conversions = Conversions(self.files, self.storages)
        self._abandoned_imports = AbandonedImports(store, self.clock)
        kept_days = settings.keep_deleted_days
        self.wheels, self.wanted_wheels = Wheels(settings.data / "wheels"), Wants()
        self.deletions = Deletions(store, self.files, self.snapshots, self.wheels, self.hub, self.clock, kept_days)
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
        self.preflights = Preflights(store, self.clock, self.hub.desired_state_changed)
        self.health = NodeHealth(store, self.clock, self.hub.desired_state_changed, self.node, self.schedule)
        self.installations = Installations(self.clock)
        self.figures = Figures(store)
        self.uploads = WeakValueDictionary[int, object]()
        """The request that is uploading each checkpoint, by the checkpoint's id, for as long as it lives."""
        self._run_of_fence: dict[int, str] = {}
        self._live_runs = LiveRuns(lambda run_id: text_of(self.run(run_id)))
        self.on_live_runs: Callable[[Set[str]], None] = lambda _: None
        """Called once a second with the ids of the runs that are live, on whatever node."""
        self._silence = Silence(store, self.hub, self.run_changed, self.leads)
        self._slow_ranks = SlowRanks(store, self.run_changed, self.leads)
        self._lost_nodes = LostNodes()
        self.check_disk_space()
        self.jobs = SlurmJobs(store, self.clock, self.hub, self.credentials, self.task_changed)
        self._scheduler = Scheduler(
            store, self.clock, self.registry, self.jobs, settings.lost_after_s, self._desired_state_changed
        )
        self.peers = None if store.is_sqlite else self._peers()

    @classmethod
    def open(cls, settings: Settings, *, new_store: bool = False) -> Service:
        """Open the data directory and its store; creates them where there never was a store. Raises StoreUnusable."""
        make_private_directory(settings.data)
        return cls(settings, open_store(settings, new_store=new_store))

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
        self.conversions.close()
        self.storages.close()
        if self.store.trouble is None:
            self.access_tokens.write_down(at_once=True)
        self.store.close()

    def launch(self, spec: RunSpec, like: str | None = None, part_of: StudyPoint | NewTrial | None = None) -> str:
        """Queue a run and return its id; masked values are taken from the run `like`.

        Raises InvalidRequest, Denied."""
        cluster = self.cluster()
        spec = self.launchable(spec, cluster, like)
        with self.snapshots.for_launch(spec) as code:
            if code:  # a clone takes minutes: look at the nodes again
                cluster = self.cluster()
                self._check_still_launches(spec)
            resolved = self.resolve(spec, cluster, code)
            self._check_environment(resolved.spec)
            remark = interpreters.remark(resolved.spec)
            run_id = run_requests.submit(self.store, resolved.spec, self.clock(), remark, part_of)
        log.info("run %s submitted (%s)", run_id, masked_text(spec.target))
        self._scheduler.schedule_launch()
        return run_id

    def _check_still_launches(self, spec: RunSpec) -> None:
        """Raise Denied where the actor lost the role, or left, while their code was brought."""
        rights = acting.rights()
        if rights.by is not None:
            self.identities.fresh(rights).check(Action.LAUNCH, project_of(spec))

    def _check_environment(self, spec: RunSpec) -> None:
        """Refuse a lock that the code lacks or that no node could build. Raises CodeRefused."""
        if spec.snapshot and spec.environment not in ("auto", "none"):
            environments.of_archive(self.snapshots.path(spec.snapshot), spec.entry, spec.environment)

    def cluster(self) -> ClusterNodes:
        """The nodes as they are registered now, for `launchable` and `resolve`."""
        return ClusterNodes(self.nodes)

    def resolve(self, spec: RunSpec, cluster: ClusterNodes, code: PackedCode | None = None) -> Resolved:
        """Fill in a spec for the nodes of a cluster, and say what follows from it."""
        return resolve(spec, cluster, targets.script_or_problem(spec), code)

    def launchable(self, spec: RunSpec, cluster: ClusterNodes, like: str | None) -> RunSpec:
        """Return a spec that passes the cheap checks, with the secrets of the run `like`.

        Raises InvalidRequest, NoSuchReference: it names what is not there, or is hidden; Denied."""
        acting.rights().check(Action.LAUNCH, project_of(spec))
        original = self._with_secrets(like) if like and has_mask(spec) else None
        if original and has_mask(original):  # imported without its secrets
            original = None
        spec = unmasked_spec(spec, original)
        check_size(spec)
        check_target(spec, cluster)
        self.references.check(spec)
        return spec

    def _with_secrets(self, run_id: str) -> RunSpec | None:
        """The spec of a run with its secrets; None where they are not those of the actor, or there is no such run.

        An admin may resume another's run; but in another program its values would be told."""
        run, rights = owned_run(self.store, run_id), acting.rights()
        is_usable = run is not None and rights.holds_values_of(run.by) and rights.may(Action.ACT, run.project, run.by)
        return run_requests.specification(self.store, run_id) if is_usable else None

    def stop(self, run_id: str, why: str | None = None, reason: str | None = None) -> RunView:
        """Ask a run to end; `why` a program does so, or a person's `reason`, which the run's owner is told.

        Raises NoSuchRun, Denied, InvalidRequest."""
        run_requests.request_stop(self.store, run_id, self.clock(), why, checked_reason(reason))
        return self._after_request(run_id)

    def end_sending(self, run_id: str) -> RunView:
        """End the sending of what a run's ended attempts have left. Raises NoSuchRun, Denied."""
        run_requests.end_sending(self.store, run_id, self.clock())
        return self._after_request(run_id)

    def remove_person(self, name: str, runs: RunsOfRemoved) -> dict[str, int]:
        """Remove a person; their live runs go on as theirs, are stopped, or become another person's.

        Returns how many were stopped or given; those that the actor may not stop go on. Raises Denied, NoSuchUser,
        InvalidRequest, WrongState."""
        if runs.fate == "give" and runs.to is None:
            raise InvalidRequest("runs", "runs: choose to whom they are given.")
        live = self.people.remove(name, runs.to)
        if runs.fate == "stop":
            return {"stopped": sum(self._stop_of_removed(run_id, name) for run_id in live)}
        for run_id in live if runs.to else ():
            self.run_changed(run_id)
        return {"given": len(live)} if runs.to else {"kept": len(live)}

    def _stop_of_removed(self, run_id: str, name: str) -> bool:
        """Stop a run of a removed person; return whether the actor may."""
        try:
            self.stop(run_id, reason=f"{name} was removed")
        except (NoSuchRun, Denied):
            return False
        return True

    def resume(self, run_id: str, checkpoint: str | None = None) -> RunView:
        """Open a new attempt from a checkpoint, by default the latest complete one.

        Raises NoSuchRun, WrongState, Denied."""
        run_requests.resume(self.store, run_id, self.clock(), checkpoint)
        return self._after_request(run_id)

    def ask_stacks(self, run_id: str) -> StacksView:
        """Ask every rank of a live run for its stack. Raises NoSuchRun, WrongState, Denied."""
        ranks.request_stacks(self.store, run_id, self.clock())
        self.hub.desired_state_of_runs_changed([run_id])
        return ranks.stacks(self.store, run_id)

    def edit(self, run_id: str, change: RunEdit) -> RunView:
        """Change how a run is named, sorted or described. Raises NoSuchRun, InvalidRequest, Denied."""
        run_requests.edit(self.store, run_id, change, self.clock())
        if change.printed_pattern is not None:
            self.hub.desired_state_of_runs_changed([run_id])
        self.run_changed(run_id)
        return self.run(run_id)

    def request_profile(self, run_id: str, steps: int, ranks: Sequence[int]) -> ProfileView:
        """Request a profile of the next steps of a run's ranks. Raises NoSuchRun, WrongState, Denied."""
        profile_id = profiles.request(self.store, run_id, steps, ranks, self.clock())
        self.hub.desired_state_of_runs_changed([run_id])
        self.run_changed(run_id)
        return profiles.profile(self.store, run_id, profile_id, self.clock())

    def profile_cost(self, run_id: str, recorded: Sequence[ProfileView], rank_count: int) -> str:
        """Say what a profile of so many ranks costs, by the run's latest one, else by the latest of another run."""
        cost = latest_cost(recorded) or profiles.cost_elsewhere(self.store, run_id)
        return cost_sentence(cost, rank_count)

    def send_checkpoint_again(self, checkpoint_id: int) -> str:
        """Have a node send a checkpoint again that never arrived whole; returns its run's id.

        Raises NoSuchCheckpoint, WrongState, Denied."""
        run_id, node_id = checkpoint_requests.request_resend(self.store, checkpoint_id, self.clock())
        self.hub.desired_state_changed([node_id])
        self.run_changed(run_id)
        self.hub.publish(run_id, {"type": "checkpoints"})
        return run_id

    def delete(self, run_id: str, at_once: bool = False) -> Deletion:
        """Delete an ended run, which can be undone for some days unless it goes `at_once`.

        Raises NoSuchRun, WrongState, Denied."""
        deleted = self.deletions.delete(run_id, at_once)
        self.run_changed(run_id)
        return deleted

    def restore(self, run_id: str) -> RunView:
        """Bring back a deleted run. Raises NoSuchRun, Denied."""
        self.deletions.restore(run_id)
        self.run_changed(run_id)
        return self.run(run_id)

    def run(self, run_id: str) -> RunView:
        """One run in full. Raises NoSuchRun."""
        view = self.find_run(run_id)
        if view is None:
            raise NoSuchRun(f"There is no run {run_id!r}.")
        return with_next_step(view)

    def find_run(self, run_id: str) -> RunView | None:
        """One run in full, or None; `run_id` may be any text."""
        is_id = RUN_ID.fullmatch(run_id)
        view = run_queries.run(self.store, run_id, self.now_for_contact()) if is_id else None
        return view if view is not None and acting.rights().sees(view.project, view.by) else None

    def nodes(self) -> list[NodeView]:
        """All nodes that ever joined; none for whoever has no role anywhere."""
        if acting.rights().refusal_anywhere(Action.SEE) is not None:
            return []
        return node_queries.nodes(self.store, self.now_for_contact(), self.settings.lost_after_s)

    def node(self, node_id: str) -> NodeView:
        """The node of an id that the store just gave, also one of a Slurm job that is over."""
        now, lost_after_s = self.now_for_contact(), self.settings.lost_after_s
        return next(node for node in node_queries.nodes(self.store, now, lost_after_s, node_id) if node.id == node_id)

    def drain(self, node: str) -> NodeView:
        """Start nothing new on a node, by its name or id. Raises NoSuchNode."""
        acting.rights().check(Action.OPERATE, None)
        return self._drained(node_requests.drain(self.store, node, self.clock()), "is draining")

    def undrain(self, node: str) -> NodeView:
        """Let a node take new runs again. Raises NoSuchNode."""
        acting.rights().check(Action.OPERATE, None)
        return self._drained(node_requests.undrain(self.store, node), "takes new runs again")

    def check_answered(self, node_id: str, check_id: int, check_answer: CheckAnswer) -> None:
        """Take a node's answer to one stage of a preflight."""
        for run_id in self.preflights.answered(node_id, check_id, check_answer):
            self.run_changed(run_id)

    def schedule(self) -> None:
        """Allocate free devices to queued runs, and notify everybody concerned; on return it has been done."""
        self._scheduler.schedule()

    def schedule_in_turn(self) -> None:
        """Schedule after a report, of which many may come at once; if scheduling is slow, a later tick does it."""
        self._scheduler.schedule_in_turn()

    def run_changed(self, run_id: str) -> None:
        """Notify the run's viewers that something about it has changed."""
        self._live_runs.forget(run_id)
        self.hub.publish(run_id, {"type": "run"})
        self.hub.publish(run_id, {"type": "history"})

    def end_unknown(self, node: str, run_id: str) -> str:
        """Have a node end a run that this store does not know; returns the node's id. Raises NoSuchNode, NoSuchRun."""
        acting.rights().check(Action.OPERATE, None)
        with self.store.write() as session:
            node_id, name = node_reports.end_unknown(session, node, run_id)
        log.info("ending run %s on node %s: this store does not know it", run_id, name)
        return node_id

    def listening(self) -> Listening:
        """The host and port that this dashboard listens on, and this machine's outward address."""
        own = certificates.published_self_signed(self.settings.data) if self.settings.tls_cert else None
        return Listening(self.settings.host, self.port, outward_address(), self.settings.scheme, own)

    def register(self, facts: NodeFacts, claim: Claim, join_token: str | None = None) -> RegisteredNode:
        """Register a worker; its earlier token ends, at every dashboard. Raises NameTaken, IdentityEnded."""
        registration = self.registry.register(facts, claim, self.settings.lost_after_s)
        self.idle_nodes.forget([registration.node_id])
        if join_token is not None:
            self.join_tokens.used(join_token)
        self._token_ended(registration.node_id)
        return registration

    def remove_node(self, node: str) -> str:
        """Remove a node (its name or id) from the cluster; returns its name. Raises NoSuchNode, WrongState."""
        acting.rights().check(Action.OPERATE, None)
        node_id, name = node_reports.remove_node(self.store, node, self.clock())
        self.registry.forget(node_id)
        self._token_ended(node_id)
        log.info("node %s (%s) removed", name, node_id)
        self.schedule()
        return name

    def assignments(self, node_id: str) -> tuple[list[Assignment], bool]:
        """Everything a node should be running, and whether anybody looks at any of it live."""
        assignments = [self.secrets.given_to(a) for a in desired_state.assignments(self.store, node_id)]
        return assignments, any(self.hub.watched(a.run_id) for a in assignments)

    def task_changed(self, fence: int) -> None:
        """Handle a worker's report: its run's desired state may change, devices may be free."""
        run_id = self.run_of(fence)
        if run_id is not None:
            self.hub.desired_state_of_runs_changed([run_id])
        self.schedule_in_turn()
        if run_id is not None:
            self.run_changed(run_id)

    def checkpoint_stored(self, run_id: str, checkpoint_id: int) -> None:
        """Handle a complete checkpoint: an elastic run may now continue on other nodes."""
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
            changes = [(rows[tag], points) for tag, points in arrival.series.items()]
            self.hub.publish(arrival.run_id, series_message(arrival.attempt, changes))

    def file_grew(self, fence: int) -> None:
        """Notify viewers that bytes of a log or event file arrived."""
        if run_id := self.run_of(fence):
            self.hub.publish(run_id, {"type": "log"})

    def run_of(self, fence: int) -> str | None:
        """The id of the run that an attempt belongs to."""
        if fence not in self._run_of_fence and (run_id := attempt_queries.run_of_attempt(self.store, fence)):
            self._run_of_fence[fence] = run_id
        return self._run_of_fence.get(fence)

    def live_run(self, run_id: str) -> str:
        """A run as JSON text, less than a second old: shared by all its viewers."""
        return self._live_runs.text(run_id, self.clock())

    def kept_live_run(self, run_id: str) -> str | None:
        """The text of `live_run` where another viewer has it already, else None; returns at once."""
        return self._live_runs.kept(run_id, self.clock())

    def latest_attempt(self, run_id: str) -> int:
        """The number of a run's latest attempt."""
        with self.store.read() as session:
            return latest_attempt(session, run_id).number

    def has_ended(self, run_id: str, attempt: int) -> bool:
        """Whether nothing more of this attempt will arrive."""
        attempts = {a.number: a for a in attempt_queries.attempts(self.store, run_id)}
        if attempt not in attempts:
            return not attempts
        with self.store.read() as session:
            is_sent = not deliveries.open_among(session, [attempts[attempt].fence])
        return attempts[attempt].state.is_terminal and is_sent

    def now_for_contact(self) -> float:
        """The time by which silence is judged."""
        return self.lease.judging_time(self.clock())

    def tick(self) -> None:
        """Once a second: schedule, and announce nodes that fell silent or are back."""
        self.lease.tick(self.clock())
        self.store.try_again()
        if self.check_disk_space():
            keep_spare(self.settings.data)
        if self.store.trouble is None:
            self._decide()
        self._silence.update(self.now_for_contact(), self.clock())
        self.on_live_runs(self._silence.live_runs)

    def check_disk_space(self) -> bool:
        """Check whether the disk has free space, and remember it."""
        self._has_disk_space = has_room(self.files.root)
        return self._has_disk_space

    @property
    def trouble(self) -> Trouble | None:
        """Why the server cannot store anything at the moment; None when it can."""
        return self.store.trouble or (None if self._has_disk_space else Trouble.FULL)

    def _decide(self) -> None:
        self.conversions.sweep()
        if self.peers is None or self.peers.leads:
            self.storages.sweep()
            self._abandoned_imports.sweep()
            self.deletions.sweep()
        self.registry.write_down()
        self.access_tokens.write_down()
        self.access_tokens.close_ended()
        self.schedule_in_turn()
        now = self.now_for_contact()
        self._end_tasks_of_lost_nodes(now)
        self._slow_ranks.update(self.clock())
        for run_id in self.preflights.tick(now):
            self.run_changed(run_id)

    def _desired_state_changed(self, run_ids: Sequence[str]) -> None:
        if run_ids:
            self.hub.desired_state_of_runs_changed(run_ids)
        for run_id in run_ids:
            self.run_changed(run_id)

    def _end_tasks_of_lost_nodes(self, now: float) -> None:
        """End the attempts that wait for a lost node; by their policies they continue elsewhere."""
        if self.peers is not None and not self.peers.leads:
            return
        changed = self._lost_nodes.judge(self.store, now, self.settings.lost_after_s)
        self._desired_state_changed(changed)
        if changed:
            self.schedule()

    def _peers(self) -> DashboardPeers:
        peers = DashboardPeers(self.store, self.hub)
        peers.on_run = self._live_runs.forget
        peers.on_node = self.registry.forget
        self.hub.peers = peers
        return peers

    def _token_ended(self, node_id: str) -> None:
        if self.peers is not None:
            self.peers.announce_registration(node_id)

    def _drained(self, node_id: str, state_text: str) -> NodeView:
        view = self.node(node_id)
        log.info("node %s %s", view.name, state_text)
        self.schedule()
        return view

    def leads(self) -> bool:
        """Whether this dashboard records what all of them observe, and carries out studies and sweeps."""
        return (self.peers is None or self.peers.leads) and self.store.trouble is None

    def _after_request(self, run_id: str) -> RunView:
        self.hub.desired_state_of_runs_changed([run_id])
        self.schedule()
        self.run_changed(run_id)
        return self.run(run_id)


log = logging.getLogger("rankzero")


def _name_of(data: Path) -> str:
    """A name for each of several dashboards that share a folder; stable across restarts."""
    return hashlib.sha256(f"{socket.gethostname()}:{data}".encode()).hexdigest()[:8]


_current: Service | None = None


def act_as_program() -> None:
    """Act with the rights of the program: nobody signs in here."""
    acting.enter(PROGRAM)


_act_for_visitor: Callable[[], None] = act_as_program


def use(service: Service | None, act_for_visitor: Callable[[], None] = act_as_program) -> None:
    """Set the service of this process for its pages, and what makes a page's thread act for its visitor."""
    global _current, _act_for_visitor
    _current, _act_for_visitor = service, act_for_visitor
    if service is not None:
        targets.read_snapshots_at(service.snapshots.path_to_read)


def act_for_visitor() -> None:
    """Act for the person whose page this thread runs, from here on."""
    _act_for_visitor()


def current() -> Service:
    """The service of this process, for a page that acts for its visitor. Raises RuntimeError where it does not."""
    if _current is None:
        raise RuntimeError("The pages need a running dashboard: start it with `rankzero dashboard`.")
    acting.entered_rights()
    return _current
