"""Nodes: list, drain and remove them, join tokens, preflights, and the cluster at a glance."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from dashboard.api.context import TheService
from dashboard.api.reading import JsonRoute
from dashboard.api.shared_reads import Tagged, answer_tagged, tagged
from dashboard.cluster.installations import InstallationReport
from dashboard.cluster.joining import how_to_join
from dashboard.cluster.picture import picture
from dashboard.json_responses import answer, document
from dashboard.security.header_values import NO_STORE
from dashboard.security.proxies import shown_url
from dashboard.service.cost_cache import CostCache
from dashboard.service.service import Service
from db.nodes.node_queries import occupants
from db.people import consequences
from db.people.visibility import Visibility, visibility

router = APIRouter(route_class=JsonRoute, prefix="/api", tags=["nodes"])


@router.get("/nodes")
def list_nodes(service: TheService) -> Response:
    """Every node that ever joined, with what runs on it."""
    return answer(service.nodes())


@router.post("/nodes/{node}/drain")
def drain(service: TheService, node: str) -> Response:
    """Start nothing new on a node, by its name or id; its runs continue."""
    return answer(service.drain(node))


@router.get("/nodes/{node}/drain")
def loss_by_draining(service: TheService, node: str) -> Response:
    """Whose runs the node trains beside yours; `sentence` is empty where it trains none."""
    return answer(consequences.of_drain(service.store, node))


@router.post("/nodes/{node}/undrain")
def undrain(service: TheService, node: str) -> Response:
    """Let a node take new runs again."""
    return answer(service.undrain(node))


@router.post("/nodes/{node}/release")
def release(
    service: TheService, node: str, device: Annotated[str | None, Body(embed=True, max_length=200)] = None
) -> Response:
    """End the quarantine of a node and all of its devices, or of one device by its id or position."""
    return answer(service.health.release(node, device))


@router.post("/nodes/{node}/test", status_code=202)
def test(service: TheService, node: str) -> Response:
    """Have a node test its devices without a run; it answers within minutes."""
    device_test = service.health.ask_test(node)
    return answer(device_test, 202, {"Location": f"/api/tests/{device_test.id}"})


@router.get("/tests/{test_id}")
def show_test(service: TheService, test_id: int) -> Response:
    """One test of a node's devices with its results so far."""
    return answer(service.health.test(test_id))


@router.get("/nodes/{node}/incidents")
def incidents(service: TheService, node: str) -> Response:
    """The memory of a node's health, newest first."""
    return answer(service.health.incidents(node))


@router.post("/nodes/{node}/end-unknown")
def end_unknown(service: TheService, node: str, run: Annotated[str, Body(embed=True, max_length=100)]) -> Response:
    """Have a node end a run that this store does not know because an older copy was restored."""
    node_id = service.end_unknown(node, run)
    service.hub.desired_state_changed({node_id})
    return answer(next(view for view in service.nodes() if view.id == node_id))


@router.delete("/nodes/{node}")
def remove(service: TheService, node: str) -> Response:
    """Remove a node from the cluster, by its name or id: its worker ends, its runs stay readable."""
    return answer({"name": service.remove_node(node)})


# Join tokens: make, list and revoke them, and show the commands that use them on a new machine.


class JoinTokenRequest(BaseModel):
    """The lifetime, name and limit of a new join token."""

    model_config = ConfigDict(extra="forbid")

    ttl_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Lifetime in seconds; a day by default."""
    name: str = ""
    most_uses: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """The number of workers that may join with it; unlimited by default."""


@router.get("/join-tokens")
def list_tokens(service: TheService) -> Response:
    """Every join token, newest first, without the secrets."""
    return answer(service.join_tokens.every())


@router.post("/join-tokens", status_code=201)
def make_token(service: TheService, request: Request, token_request: JoinTokenRequest) -> Response:
    """Make a join token. Only this response contains its secret."""
    view, secret = service.join_tokens.make(token_request.ttl_s, token_request.name, token_request.most_uses)
    join_commands = how_to_join(secret, service.listening(), shown_url(request))
    return answer(document(view) | {"token": secret} | document(join_commands), 201, NO_STORE)


@router.delete("/join-tokens/{token_id}")
def revoke_token(service: TheService, token_id: str) -> Response:
    """Revoke a join token; nodes that have joined with it stay."""
    return answer(service.join_tokens.revoke(token_id))


# Reports of `rankzero nodes add` on its hosts: it connects to them, this server never does.


@router.put("/node-installations/{key}")
def report_installation(
    service: TheService, key: Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")], report: InstallationReport
) -> Response:
    """Show the progress of a command that installs workers on the Nodes page."""
    return answer(service.installations.record(key, report))


@router.get("/node-installations")
def list_installations(service: TheService) -> Response:
    """The last commands that installed workers, newest first, as they reported to this process."""
    return answer(service.installations.all())


# Preflights: whether nodes can train together, cell by cell.

Nodes = Annotated[
    list[Annotated[str, Body(max_length=200)]] | None,
    Body(max_length=4096, description="Names or ids; by default all nodes that are online."),
]
Bandwidth = Annotated[bool, Body(description="Also measure an all-reduce between each pair of nodes.")]


@router.post("/preflight", status_code=202)
def ask(service: TheService, nodes: Nodes = None, bandwidth: Bandwidth = False) -> Response:
    """Ask nodes whether they can train together; they answer within seconds."""
    check = service.preflights.one(service.preflights.ask(nodes, bandwidth))
    return answer(check, 202, {"Location": f"/api/preflight/{check.id}"})


@router.get("/preflight")
def list_preflights(service: TheService) -> Response:
    """The preflights that people asked for, newest first."""
    return answer(service.preflights.all())


@router.get("/preflight/{check_id}")
def show(service: TheService, check_id: int) -> Response:
    """One preflight with the answers so far."""
    return answer(service.preflights.one(check_id))


# The cluster as the Nodes page draws it; every open page asks for it every few seconds.

CACHED_S = 1.0


class Pictures:
    """The last picture, shared by all who see the same: hundreds of nodes are read once a second at most."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._cache = CostCache[Visibility, Tagged](CACHED_S)

    def latest(self) -> Tagged:
        """The picture as gzipped JSON, and its tag."""
        return self._cache.get(visibility(), self._draw)

    def _draw(self) -> Tagged:
        return tagged(picture(self._service.nodes(), occupants(self._service.store)))


@router.get("/cluster")
def cluster(request: Request) -> Response:
    """Every node with its devices as cells [state, run, rank, utilisation %, bytes used], and a summary."""
    pictures: Pictures = request.app.state.pictures
    return answer_tagged(request, pictures.latest())
