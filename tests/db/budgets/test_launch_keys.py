"""A key does one thing once, whoever of several asks first, and other content is told apart."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from db import acting
from db.budgets import launch_keys
from db.budgets.launch_keys import KEPT_S, Earlier, KeyedRequest
from domain.people.rights import rights_of_owner

pytestmark = pytest.mark.both_stores
ASKED = KeyedRequest("k", "launch this")
AGENT = replace(rights_of_owner(), via="token agent")


def begin(store, request, now=1000.0, rights=AGENT):
    with acting.acting(rights):
        return launch_keys.begin(store, request, now)


def test_the_first_claims_the_key_and_the_next_gets_its_run(store):
    assert begin(store, ASKED) is None
    assert begin(store, ASKED) == Earlier(True, "")
    with acting.acting(AGENT):
        launch_keys.answered(store, ASKED, "run1")
    assert begin(store, ASKED) == Earlier(True, "run1")
    assert begin(store, KeyedRequest("k", "launch that")) == Earlier(False, "run1")


def test_a_key_is_of_one_token_alone_and_a_refused_request_frees_it(store):
    assert begin(store, ASKED) is None
    assert begin(store, ASKED, rights=replace(AGENT, via="token other")) is None
    with acting.acting(AGENT):
        launch_keys.refused(store, ASKED)
    assert begin(store, ASKED) is None
    assert begin(store, ASKED, now=1001.0 + KEPT_S) is None


def test_of_many_at_once_one_claims_the_key(store):
    with ThreadPoolExecutor(8) as threads:
        before = list(threads.map(lambda _: begin(store, ASKED), range(8)))
    assert sorted(before, key=str) == sorted([None, *[Earlier(True, "")] * 7], key=str)
