"""Guests on the Nodes page: a section of their own, a row for each host and run, and nothing where there are none."""

from __future__ import annotations

from tests.dashboard.pages import served, texts
from tests.db.watched_hosts import watched

TITLE = "Guests (watched runs)"


def test_guests_have_a_section_of_their_own(tmp_path) -> None:
    with served(tmp_path / "data") as pages:
        assert TITLE not in [heading.value for heading in pages.open("nodes").subheader]
        now = pages.service.clock()
        hosts = [
            watched(
                pages.service.store, now, key="k", process=n, processes=8, ranks_here=1, name="resnet", started_at=now
            )
            for n in range(8)
        ]
        page = pages.open("nodes")
        assert not page.exception and TITLE in [heading.value for heading in page.subheader]
        (row,) = [line for line in texts(page).splitlines() if line.startswith("| gpu")]
        assert f"run?id={hosts[0].place.run_id}" in row and "8 × NVIDIA H200" in row and "mara" in row
        assert not [one for one in page.button if one.label in ("Drain", "Test", "Remove")]
