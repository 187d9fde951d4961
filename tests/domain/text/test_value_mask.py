"""Values of secrets are masked however they are written, at their length, whatever the pieces they come in."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from urllib.parse import quote

import pytest

from domain.masking.values import ValueMask, check_value, doubt
from domain.requests.errors import InvalidRequest

TOKEN = 'hf_AbC/dEf+Gh"IjK\\l'
KEY = "-----BEGIN KEY-----\nMIIEvQIBADAN\nBgkqhkiG9w0B\nab==\n-----END KEY-----\n"


@pytest.mark.parametrize(
    "written",
    [
        TOKEN,
        json.dumps({"token": TOKEN}),
        repr([TOKEN]),
        f"https://host/?token={quote(TOKEN, safe='')}",
        f"Basic {b64encode(f'user:{TOKEN}'.encode()).decode()}",
        f"Basic {b64encode(f'me:{TOKEN}'.encode()).decode()}",
        f"cut off: {TOKEN[:12]}…",
        f"…{TOKEN[-12:]} is the end",
    ],
)
def test_no_part_of_a_value_is_left(written: str) -> None:
    masked = ValueMask([TOKEN]).text(written)
    assert len(masked) == len(written) and "********" in masked
    for encoded in (TOKEN, json.dumps(TOKEN)[1:-1], quote(TOKEN, safe="")):
        assert not any(encoded[at : at + 8] in masked for at in range(len(encoded) - 7))


PASSWORD = "it's $5 \\or `six`"


@pytest.mark.parametrize(
    "written",
    [
        """PASSWORD='it'"'"'s $5 \\or `six`'""",
        'declare -x PASSWORD="it\'s \\$5 \\\\or \\`six\\`"',
        "it\\'s\\ \\$5\\ \\\\or\\ \\`six\\`",
        PASSWORD.encode().hex(),
        PASSWORD.encode().hex().upper(),
    ],
)
def test_a_value_is_masked_as_shells_and_hexadecimal_write_it(written: str) -> None:
    masked = ValueMask([PASSWORD]).text(written)
    assert len(masked) == len(written) and set(masked.rpartition("PASSWORD=")[2].strip("'\"")) == {"*"}


def test_each_line_of_a_value_is_masked_by_itself() -> None:
    mask = ValueMask([KEY])
    assert mask.text("  | MIIEvQIBADAN\n  | BgkqhkiG9w0B\n") == "  | ************\n  | ************\n"
    assert set(mask.text(KEY)) == {"*"}


def test_lines_of_a_key_in_a_json_document_are_masked_once_a_script_has_read_it() -> None:
    account = json.dumps(
        {"type": "service_account", "private_key_id": "0f1e2d3c4b5a", "private_key": KEY, "note": "plain text"}
    )
    mask = ValueMask([account])
    assert set(mask.text(account)) == {"*"}
    assert mask.text("MIIEvQIBADAN id 0f1e2d3c4b5a") == "************ id ************"
    assert mask.text("a service_account with plain text") == "a service_account with plain text"
    assert mask.text(json.dumps(json.loads(account), indent=2)).count("service_account") == 1


def test_the_password_of_an_address_is_masked_by_itself() -> None:
    mask = ValueMask(["postgres://me:p%40ssw0rd-1234@db.example.com/runs"])
    assert mask.text("p%40ssw0rd-1234 p@ssw0rd-1234 db.example.com") == "*************** ************* db.example.com"


def test_a_line_of_dashes_in_a_value_hides_no_other_line_of_dashes() -> None:
    assert ValueMask([f"first-line-1\n{'-' * 20}\nlast-line-2"]).text("-" * 40) == "-" * 40


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("training", "like a word"),
        ("Password", "like a word"),
        ("20240131", "like a word"),
        ("ab1\nab2\nab3", "None of its lines"),
    ],
)
def test_a_value_that_is_masked_otherwise_than_one_expects_is_doubted(value: str, sentence: str) -> None:
    check_value(value)
    assert sentence in (doubt(value) or "")
    assert doubt(TOKEN) is doubt(KEY) is doubt("correct-horse") is None


def test_names_and_values_of_a_document_are_masked() -> None:
    mask = ValueMask([TOKEN])
    document = {"a": [1, None, {"b": f"x{TOKEN}"}], f"tag/{TOKEN}": "plain"}
    assert mask.document(document) == {"a": [1, None, {"b": "x" + "*" * 19}], "tag/" + "*" * 19: "plain"}
    assert mask.text("\ud800 lone") == "\ud800 lone"


def test_nothing_is_masked_without_a_value() -> None:
    content = b"anything"
    assert ValueMask().content(content) is content and not ValueMask()
    assert ValueMask([TOKEN]).content(content) is content


def test_pieces_of_any_size_give_what_the_whole_gives() -> None:
    draw = random.Random(7)
    for _ in range(200):
        values = ["abcabcabd", "bcabdabcab", "abcdabcdab\nxyxyxyxyz"]
        mask = ValueMask(draw.sample(values, draw.randint(1, 3)))
        words = [*" ".join(values).split(), "abcabc", "xyxy", "b", "\n", "abcabcabcabd"]
        whole = "".join(draw.choice(words) for _ in range(40)).encode()
        assert _in_pieces(mask, whole, draw) == mask.content(whole)


def _in_pieces(mask: ValueMask, whole: bytes, draw: random.Random) -> bytes:
    """Mask as it arrives: bytes that may begin a value wait, all others go on."""
    sent, arrived = b"", 0
    while arrived < len(whole):
        arrived = min(len(whole), arrived + draw.randint(1, 9))
        ready = arrived - mask.open_end(whole[:arrived])
        sent += mask.content(whole[:arrived])[len(sent) : ready]
    return sent + mask.content(whole)[len(sent) :]


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        ("short", "at least 8"),
        ("  short  \n", "at least 8"),
        ("aaaaaaaaaaaa", "4 of them different"),
        ("x" * 20_000, "16 KiB"),
        ("a\0bcdefgh", "NUL"),
    ],
)
def test_a_value_that_would_mask_everything_is_refused(value: str, rule: str) -> None:
    with pytest.raises(InvalidRequest, match=rule):
        check_value(value)
    check_value(TOKEN)
