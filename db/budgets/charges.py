"""Charge attempts to the budgets of tokens: judged and stored in the transaction that opens them."""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, case, func, or_, select, update
from sqlalchemy.orm import Session

from db import acting
from db.engine import Store
from db.models import AccessToken, Attempt, Charge, Run
from domain.agents import budget
from domain.agents.budget import ChargedLaunch, OverBudget
from domain.people.roles import Scope
from domain.people.tokens import BudgetView
from domain.spec import RunSpec


def payer() -> str | None:
    """Return the id of the token that pays for what the actor launches; None where no budget bounds the actor.

    Raises OverBudget for a token of scope mcp without a budget."""
    rights = acting.rights()
    if rights.scope is Scope.MCP and rights.token_id is None:
        raise OverBudget(
            f"{str(rights.via).capitalize()} has no budget, so it may only propose a run, which a person launches. "
            f"Make one with `rankzero token create NAME --scope {Scope.MCP} --budget 20h`."
        )
    return rights.token_id


def of_launch(session: Session, run: Run, spec: RunSpec, expected_s: float | None) -> Charge | None:
    """Return what the first attempt of a new run is charged, and bind the run to the token that pays; None for none.

    Raises OverBudget."""
    token_id = payer()
    if token_id is None:
        return None
    token = _paying(session, token_id, run.created_at)
    run.token_id, run.longest_s = token.id, token.longest_s
    return _charge(session, token, run, devices_of(spec), expected_s, run.created_at)


def of_next(session: Session, run: Run, previous: Attempt, now: float, *, is_asked: bool) -> Charge | None:
    """Return what the attempt after a previous one is charged; None for none.

    The actor's token pays, or unless a person asked (`is_asked`) the previous attempt's: what a person resumes without
    a token is charged to none. Raises OverBudget."""
    charged = session.get(Charge, previous.fence)
    token_id = payer() or (charged.token_id if charged and not is_asked else None)
    if token_id is None:
        return None
    devices = devices_of(RunSpec.model_validate(run.spec))
    expected_s = charged.least_s if charged else None
    return _charge(session, _paying(session, token_id, now), run, devices, expected_s, now)


def devices_of(spec: RunSpec) -> int:
    """Return the devices that a run asks for; of an elastic one the most."""
    return spec.nodes * (spec.gpus_per_node or 1)


def _paying(session: Session, token_id: str, now: float) -> AccessToken:
    """Return a token, locked until the transaction ends, so that launches at the same time count each other.

    Raises OverBudget where it has ended."""
    token = session.get(AccessToken, token_id, with_for_update=True, populate_existing=True)
    if token is None or _has_ended(token, now):
        raise OverBudget("The token with which the run was launched has ended: nothing more is charged to it.")
    return token


def _charge(
    session: Session, token: AccessToken, run: Run, devices: int, expected_s: float | None, now: float
) -> Charge:
    """Return a charge that fits the token's budget, without the attempt's fence. Raises OverBudget."""
    longest_s = token.longest_s if run.longest_s is None else run.longest_s
    launch = ChargedLaunch(devices, expected_s, trained_s(session, run.id, now), longest_s)
    budget.check(token.name, budget_of(session, token, now), launch)
    return Charge(token_id=token.id, run_id=run.id, devices=devices, asked_at=now, least_s=launch.least_s)


def placed(session: Session, fence: int, devices: int) -> None:
    """Note how many devices an attempt got, which for an elastic run may be fewer than it asked for."""
    session.execute(update(Charge).where(Charge.fence == fence).values(devices=devices))


def keep(session: Session, run_id: str) -> None:
    """Copy the times of a run's attempts to its charges, which stay when the run is erased."""
    of_charge = select(Attempt).where(Attempt.fence == Charge.fence)
    times = {name: of_charge.with_only_columns(getattr(Attempt, name)).scalar_subquery() for name in TIMES}
    session.execute(
        update(Charge).where(Charge.run_id == run_id).values(times), execution_options={"synchronize_session": False}
    )


TIMES = ("placed_at", "ended_at")


def budget_of(session: Session, token: AccessToken, now: float) -> BudgetView:
    """Return the bounds of a token with a budget, and what its runs take of them."""
    ended_at = func.coalesce(Attempt.ended_at, Charge.ended_at)
    in_use = func.sum(case((ended_at.is_(None), Charge.devices), else_=0))
    sums = select(func.sum(Charge.devices * _taken_s(now)), in_use)
    sums = sums.outerjoin(Attempt, Attempt.fence == Charge.fence).where(Charge.token_id == token.id)
    used_s, devices = session.execute(sums).one()
    return BudgetView(token.budget_s or 0.0, token.most_devices, token.longest_s, float(used_s or 0.0), devices or 0)


def _taken_s(now: float) -> ColumnElement[float]:
    """The time that an attempt is charged for: from its placement to its end; until then at least what it reserves."""
    placed_at = func.coalesce(Attempt.placed_at, Charge.placed_at)
    ended_at = func.coalesce(Attempt.ended_at, Charge.ended_at)
    took_s = func.coalesce(ended_at, now) - placed_at
    has_ended = ended_at.is_not(None)
    return case(
        (and_(has_ended, or_(placed_at.is_(None), took_s < 0.0)), 0.0),  # a clock may go back
        (or_(has_ended, took_s > Charge.least_s), took_s),
        else_=Charge.least_s,
    )  # fmt: skip


def trained_s(session: Session, run_id: str, now: float) -> float:
    """Return the seconds that a run's charged attempts have trained."""
    took_s = func.coalesce(Attempt.ended_at, now) - Attempt.started_at
    query = select(func.sum(took_s)).join(Charge, Charge.fence == Attempt.fence)
    return float(session.scalar(query.where(Attempt.run_id == run_id)) or 0.0)


def spent_since(session: Session, token: AccessToken, charge: Charge, attempt: Attempt, now: float) -> float | None:
    """Return since when a live attempt trains though its token's budget is used up; None while it may.

    What was charged for it at once it may use in any case."""
    own_s = now - (attempt.placed_at or now) - charge.least_s
    if token.budget_s is None or own_s < 0:
        return None
    view = budget_of(session, token, now)
    excess_s = view.used_s - token.budget_s
    return None if excess_s < 0 else now - min(own_s, excess_s / view.devices)


def must_wait(store: Store, token_id: str | None, spec: RunSpec, now: float) -> bool:
    """Whether a launch that a token pays has to wait until earlier ones have ended."""
    if token_id is None:
        return False
    with store.read() as session:
        token = session.get(AccessToken, token_id)
        return token is not None and budget.must_wait(budget_of(session, token, now), devices_of(spec))


def _has_ended(token: AccessToken, now: float) -> bool:
    return token.revoked_at is not None or (token.expires_at is not None and token.expires_at <= now)
