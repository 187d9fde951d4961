"""The actions of a dashboard for people, programs and nodes, and the one dashboard of this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from dashboard.cluster.joining import Listening, outward_address
from dashboard.json_responses import text_of
from dashboard.planning import environments, interpreters
from dashboard.planning.fixes import with_next_step
from dashboard.planning.resolve import ClusterNodes, Resolved, check_target, resolve
from dashboard.script_reader import targets
from dashboard.security.keys import certificates
from dashboard.service.deletions import Deletion
from dashboard.service.parts import Parts
from db import acting
from db.attempts import attempt_queries, deliveries
from db.budgets import charges
from db.checkpoints import checkpoint_requests
from db.exceptions import NoSuchRun, WrongState
from db.lookups import latest_attempt
from db.nodes import node_queries, node_reports, node_requests
from db.nodes.node_reports import Claim, RegisteredNode
from db.people import audit
from db.people.ownership import ObjectKind, owned_run, project_of
from db.people.permission import no_such
from db.ranks import profiles, ranks
from db.runs import run_queries, run_requests
from db.runs.expected_times import expected_time
from db.runs.run_requests import NewTrial
from db.tasks import desired_state
from domain.agents.budget import OverBudget
from domain.assignments import Assignment
from domain.choices import RUN_ID
from domain.masking.masking import has_mask, masked_text, unmasked_spec
from domain.messages import NodeFacts
from domain.people.audit import AuditAction
from domain.people.removal import RunsOfRemoved
from domain.people.rights import PROGRAM, Denied, Rights
from domain.people.roles import Action
from domain.profiles.views import ProfileView, cost_sentence, latest_cost
from domain.requests.errors import InvalidRequest
from domain.spec import RunEdit, RunSpec, check_size, checked_reason
from domain.views import NodeView, RunView, StacksView


class Service(Parts):
    """One dashboard: its parts, and the actions that may be asked of it; safe to use from any thread."""

    def launch(self, spec: RunSpec, like: str | None = None, part_of: NewTrial | None = None) -> str:
        """Queue a run and return its id; masked values are taken from the run `like`.

        Raises InvalidRequest, Denied."""
        with self._refusals_recorded(f"launch of {masked_text(spec.target)}", project_of(spec)):
            token_id = charges.payer()
            with self.resolved(spec, like) as resolved:
                remark = interpreters.remark(resolved.spec)
                expected = expected_time(self.store, resolved.spec) if token_id else None
                expected_s = expected.high_s if expected else None
                run_id = run_requests.submit(self.store, resolved.spec, self.clock(), remark, part_of, expected_s)
        log.info("run %s submitted (%s)", run_id, masked_text(spec.target))
        self.scheduler.schedule_launch()
        return run_id

    @contextmanager
    def _refusals_recorded(self, object_name: str, project: str | None) -> Iterator[None]:
        """Write down in the audit log what the budget of the actor's token refuses in a block."""
        try:
            yield
        except OverBudget as refusal:
            audit.record(self.store, AuditAction.LAUNCH_REFUSED, object_name, project, {"why": str(refusal)})
            raise

    @contextmanager
    def resolved(self, spec: RunSpec, like: str | None) -> Iterator[Resolved]:
        """Check a spec, store its code and complete it; the code is held until what is launched is in the store.

        Raises InvalidRequest, Denied."""
        cluster = self.cluster()
        spec = self.launchable(spec, cluster, like)
        with self.snapshots.for_launch(spec) as code:
            if code:  # a clone takes minutes: look at the nodes again
                cluster = self.cluster()
                self.identities.check_still_may(Action.LAUNCH, project_of(spec))
            resolved = resolve(spec, cluster, code)
            environments.check_stored(resolved.spec, self.snapshots.path)
            yield resolved

    def cluster(self) -> ClusterNodes:
        """The nodes as they are registered now, for `launchable` and `resolve`."""
        return ClusterNodes(self.nodes)

    def launchable(self, spec: RunSpec, cluster: ClusterNodes, like: str | None) -> RunSpec:
        """Return a spec that passes the cheap checks, with the secrets of the run `like`.

        Raises InvalidRequest, NoSuchReference: it names what is not there, or is hidden; Denied; WrongState."""
        acting.rights().check(Action.LAUNCH, project_of(spec))
        if like:
            run_requests.check_launched_here(self.store, like)
        original = run_requests.specification(self.store, like) if like and has_mask(spec) else None
        if original and has_mask(original):  # imported without its secrets
            original = None
        spec = unmasked_spec(spec, original)
        check_size(spec)
        check_target(spec, cluster)
        self.references.check_request(spec)
        return spec

    def stop(self, run_id: str, why: str | None = None, reason: str | None = None) -> RunView:
        """Ask a run to end; `why` a program does so, or a person's `reason`, which reaches the run's owner.

        Raises NoSuchRun, Denied, InvalidRequest."""
        run_requests.request_stop(self.store, run_id, self.clock(), why, checked_reason(reason))
        return self._after_request(run_id)

    def stop_launched(self, rights: Rights, project: str, run_id: str, why: str | None = None) -> None:
        """Stop a run that a study launched in a project, even if a person with these rights may not any more.

        A run that was moved elsewhere is stopped only if they may act on it there; one that was deleted has ended."""
        run = owned_run(self.store, run_id)
        if run is not None and (run.project == project or rights.may(Action.ACT, run.project, run.by)):
            with suppress(NoSuchRun):
                self.stop(run_id, why)

    def end_sending(self, run_id: str) -> RunView:
        """End the sending of what a run's ended attempts have left. Raises NoSuchRun, Denied."""
        run_requests.end_sending(self.store, run_id, self.clock())
        return self._after_request(run_id)

    def remove_person(self, name: str, runs: RunsOfRemoved) -> dict[str, int]:
        """Remove a person; their live runs continue, are stopped, or become another person's.

        Returns how many were stopped or given; those that the actor may not stop go on. Raises Denied, NoSuchUser,
        InvalidRequest, WrongState."""
        if runs.fate == "give" and runs.to is None:
            raise InvalidRequest("runs", "runs: choose who gets them.")
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
        except (NoSuchRun, Denied, WrongState):
            return False
        return True

    def resume(self, run_id: str, checkpoint: str | None = None) -> RunView:
        """Open a new attempt from a checkpoint, by default the latest complete one.

        Raises NoSuchRun, WrongState, Denied."""
        project = run.project if (run := owned_run(self.store, run_id)) else None
        with self._refusals_recorded(f"run {run_id}", project):
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
        """Have a node resend a checkpoint that never fully arrived; returns its run's id.

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
        """Restore a deleted run. Raises NoSuchRun, Denied."""
        self.deletions.restore(run_id)
        self.run_changed(run_id)
        return self.run(run_id)

    def run(self, run_id: str) -> RunView:
        """One run in full. Raises NoSuchRun."""
        view = self.find_run(run_id)
        if view is None:
            raise no_such(ObjectKind.RUN, run_id)
        return with_next_step(view)

    def find_run(self, run_id: str) -> RunView | None:
        """One run in full, or None; `run_id` may be any text."""
        is_id = RUN_ID.fullmatch(run_id)
        return run_queries.run(self.store, run_id, self.now_for_contact()) if is_id else None

    def live_run(self, run_id: str) -> str:
        """A run as JSON text, less than a second old: shared by all its viewers."""
        return self.live_runs.text(run_id, self.clock(), lambda: text_of(self.run(run_id)))

    def kept_live_run(self, run_id: str) -> str | None:
        """The text of `live_run` where another viewer has it already, else None; returns at once."""
        return self.live_runs.kept(run_id, self.clock())

    def nodes(self) -> list[NodeView]:
        """All nodes that ever joined; none for an actor without a role anywhere."""
        if acting.rights().refusal_anywhere(Action.SEE) is not None:
            return []
        return node_queries.nodes(self.store, self.now_for_contact(), self.settings.lost_after_s)

    def drain(self, node: str) -> NodeView:
        """Start nothing new on a node, by its name or id. Raises NoSuchNode."""
        acting.rights().check(Action.OPERATE, None)
        return self._drained(node_requests.drain(self.store, node, self.clock()), "is draining")

    def undrain(self, node: str) -> NodeView:
        """Let a node take new runs again. Raises NoSuchNode."""
        acting.rights().check(Action.OPERATE, None)
        return self._drained(node_requests.undrain(self.store, node), "takes new runs again")

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
        self.token_ended(registration.node_id)
        return registration

    def remove_node(self, node: str) -> str:
        """Remove a node (its name or id) from the cluster; returns its name. Raises NoSuchNode, WrongState."""
        acting.rights().check(Action.OPERATE, None)
        node_id, name = node_reports.remove_node(self.store, node, self.clock())
        self.registry.forget(node_id)
        self.token_ended(node_id)
        log.info("node %s (%s) removed", name, node_id)
        self.schedule()
        return name

    def assignments(self, node_id: str) -> tuple[list[Assignment], bool]:
        """Everything a node should be running, and whether anyone views any of it live."""
        assignments = [self.secrets.given_to(a) for a in desired_state.assignments(self.store, node_id)]
        return assignments, any(self.hub.watched(a.run_id) for a in assignments)

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

    def _drained(self, node_id: str, state_text: str) -> NodeView:
        view = self.node(node_id)
        log.info("node %s %s", view.name, state_text)
        self.schedule()
        return view

    def _after_request(self, run_id: str) -> RunView:
        self.hub.desired_state_of_runs_changed([run_id])
        self.schedule()
        self.run_changed(run_id)
        return self.run(run_id)


log = logging.getLogger("rankzero")


# The service of this process, and whom its pages act for.


def act_as_program() -> None:
    """Act with the rights of the program: nobody signs in here."""
    acting.enter(PROGRAM)


_current: Service | None = None
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
