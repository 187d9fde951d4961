"""The pages of read-only links: the report of their runs, as it is now."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy.exc import SQLAlchemyError

from dashboard.exports.report import report, report_policy
from dashboard.security.plain_pages import PLAIN_POLICY, shared_link_page
from dashboard.security.signing_in.sign_ins import Failures
from dashboard.service.cost_cache import CostCache
from dashboard.service.service import Service
from db import acting
from db.engine import StoreGone
from db.exceptions import NoSuchLink, NoSuchRun
from db.runs import shared_links
from db.runs.compared_runs import compared_runs
from db.runs.shared_links import LinkEnded, LinkView
from domain.people.rights import PROGRAM

CACHED_S = 5.0
MOST_CACHED = 16
ASK = "Ask the sender for a new one."


class SharedPage(NamedTuple):
    """An HTML page with its status and Content-Security-Policy."""

    status: int
    html: bytes
    policy: str


class SharedPages:
    """The newest page of each link: read at every visit, rarely written."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._pages = CostCache[str, SharedPage](CACHED_S, MOST_CACHED)
        self._failures = Failures("%d visits to links that do not exist")

    def page(self, token: str) -> SharedPage:
        """Return the page of a token: 200, 404 for an unknown one, 410 for one that has ended."""
        now = self._service.clock()
        try:
            link = shared_links.opened(self._service.store, token, now)
            with acting.acting(PROGRAM):  # the link opens its runs, and nothing else is read
                return self._pages.get(link.id, lambda: self._written(link))
        except (NoSuchLink, NoSuchRun) as error:
            self._failures.count(now)
            return _refusal(404, str(error), ASK)
        except LinkEnded as error:
            return _refusal(410, str(error), ASK)
        except (SQLAlchemyError, OSError, StoreGone):
            return _refusal(503, "The runs cannot be read at the moment.", "Nothing is lost; reload this page later.")

    def _written(self, link: LinkView) -> SharedPage:
        """Write the report of the runs that were not deleted. Raises LinkEnded where all were."""
        present = list(compared_runs(self._service.store, link.runs))
        if not present:
            raise LinkEnded("The runs of this link were deleted.")
        html = report(self._service, present, link.expires_at)
        return SharedPage(200, html, report_policy(present))


def _refusal(status: int, sentence: str, advice: str) -> SharedPage:
    return SharedPage(status, shared_link_page(sentence, advice).encode(), PLAIN_POLICY)
