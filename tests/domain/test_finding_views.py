"""A finding is shown without what the text above it says already."""

from __future__ import annotations

import pytest

from domain.views import FindingView, states

FINDING = FindingView(1, 0, "slow rank", "Rank 3 is slow.", "The others wait.", "Look at its node.", 1.0, None)


@pytest.mark.parametrize(
    ("text", "sentence", "expected"),
    [
        ("Rank 3 is slow. Then it ended.", "Rank 3 is slow.", True),
        ("gpu-1: rank 3 is slow; then it ended", "Rank 3 is slow.", True),
        ("It begins: " + "x" * 300, "A" + "x" * 900 + ".", True),  # a message is cut
        ("Rank 4 is slow.", "Rank 3 is slow.", False),
        ("Rank 3 is slow.", "", False),
        ("", "Rank 3 is slow.", False),
    ],
)
def test_text_states_a_sentence(text: str, sentence: str, expected: bool) -> None:
    assert states(text, sentence) is expected


def test_a_finding_beyond_a_text_keeps_its_meaning() -> None:
    beyond = FINDING.beyond("rank 3 is slow")
    assert (beyond.evidence, beyond.meaning, beyond.fix) == ("", FINDING.meaning, FINDING.fix)
    assert FINDING.beyond("Look at its node. Or not.").fix == ""
    assert FINDING.beyond("It ended.") == FINDING
