"""Reports of `rankzero nodes add` to the dashboard."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from dashboard.cluster.installations import InstallationReport


@pytest.mark.parametrize("field", ["identity_file", "password", "jump", "token"])
def test_report_has_no_place_for_how_to_log_in(field: str) -> None:
    host = {"host": "gpu-1", "state": "working", "step": "looking", "message": ""}
    assert InstallationReport.model_validate({"action": "add", "hosts": [host]}).hosts[0].step == "looking"
    with pytest.raises(ValidationError, match=field):
        InstallationReport.model_validate({"action": "add", "hosts": [host | {field: "x"}]})
