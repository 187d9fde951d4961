"""Turn a request for a sweep into a stored one, or refuse it with the rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dashboard.service.service import Service
from dashboard.sweeps.trial_spec import trial_spec
from db.sweeps import sweeps
from domain.errors import InvalidRequest
from domain.scheduling.fit import fit
from domain.spec import RunSpec
from domain.sweeps import SweepPlan, SweptParameter, Value


class SweepRequest(SweepPlan):
    """A sweep as a person requests it."""

    spec: RunSpec

    @property
    def plan(self) -> SweepPlan:
        """The request without its spec."""
        return SweepPlan.model_validate(self.model_dump(exclude={"spec"}))


def create(service: Service, request: SweepRequest, like: str | None = None) -> str:
    """Store the sweep and its code; return its id. Raises InvalidRequest, ValidationError."""
    cluster = service.cluster()
    spec = service.launchable(request.spec, cluster, like)
    with service.snapshots.for_launch(spec) as code:
        base = service.resolve(spec, cluster, code).spec
        for params in _corners(request.parameters):
            if refusal := fit(trial_spec(base, params), cluster.states).refusal:
                raise InvalidRequest(*refusal)
        return sweeps.create(service.store, base, request.plan, service.clock())


def _corners(parameters: Mapping[str, SweptParameter]) -> Iterator[dict[str, Value]]:
    """Every value of a list and both ends of a range, with the first values of the other parameters."""
    ends = {name: parameter.values or _ends(parameter) for name, parameter in parameters.items()}
    first = {name: values[0] for name, values in ends.items()}
    for name, values in ends.items():
        for value in values:
            yield first | {name: value}


def _ends(parameter: SweptParameter) -> list[Value]:
    return [end for end in (parameter.low, parameter.high) if end is not None]
