"""Recognize secrets in a specification and mask them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from domain.requests.errors import InvalidRequest
from domain.spec import RunSpec

MASK = "********"
"""Shown in place of a secret. In a submitted specification it means: the value of the run it was copied from."""

_SECRET_PART = re.compile(r"TOKEN(?!IZ)|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|(API|ACCESS|PRIVATE)KEY")
_SECRET_WORDS = frozenset("KEY KEYS PASS PWD CREDS AUTH AUTHORIZATION BEARER JWT PAT SAS DSN SIGNATURE".split())
_COUNTED = frozenset("MAX MIN NUM N PER BATCH TOTAL NEW TRAIN EVAL CONTEXT SEQ EOS BOS PAD UNK MASK".split())
"""Beside these words a token is a piece of text: MAX_TOKENS, PAD_TOKEN_ID."""
_MEASURED = frozenset("DIM DIMS SIZE LEN LENGTH BITS COUNT HEADS TYPE".split())
"""After these words a key is a tensor: KEY_DIM."""
_PLACES = frozenset("PATH FILE DIR".split())
_ARGUMENT_ENDS = frozenset(
    "token tokens key keys apikey accesskey secret password passwd passwords passphrase pwd pass credential "
    "credentials creds cookie cookies auth authorization bearer jwt dsn".split()
)
_NOT_SECRET_KEYS = frozenset(
    "image text label sort primary foreign public group data dataset column col input output target feature "
    "partition row cache metric monitor index loss batch query dict json field sample prompt response video "
    "audio state order kv rng prng line lookup value num max min".split()
)
"""`--image-key` names a column."""
_NOT_SECRET_TOKENS = frozenset(
    "pad eos bos unk mask cls sep eot eod start end stop begin prefix special image video audio class dist "
    "register new next last first per each num max min n extra trigger placeholder instance concept modifier "
    "initializer drop query single multi decoder encoder".split()
)
"""`--pad-token` is a piece of text."""
_SWITCHES = frozenset("use no with require requires disable enable skip".split())
_ON_OFF = frozenset("0 1 true false yes no on off none null".split())
# Repetitions are bounded: searching a value of 128 KiB would take minutes otherwise.
_URL_USER = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,19})://(?P<user>[^\s/:]*)(?P<password>:[^\s/]*)?@")
_URL_QUERY = re.compile(r"(?P<name>[?&][\w.-]+)=(?P<value>[^&\s#]+)")
_HEADER = re.compile(r"(?i)\b(?P<name>authorization|x-[a-z-]{0,40}(?:key|token)|cookie)(?P<colon>\s*:\s*)\S.*")
_BEARER = re.compile(r"(?i)\b(?P<word>bearer)\s+[^\s,;'\"]+")
_OWN_TOKEN = re.compile(
    r"(?P<kind>rz_(?=[A-Za-z0-9]{43})|attempt-\d{1,18}-[0-9a-z]{1,40}-(?=[0-9a-f]{64})|job-\d{1,18}-(?=[0-9a-f]{64}))"
    r"[A-Za-z0-9]{43,64}"
)
"""Tokens of this program, which have a form of their own: a person's, an attempt's, a Slurm job's."""
_COOKIE = re.compile(r"(?P<name>rankzero-[0-9a-f]{10})=[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])")
_ASSIGNED = re.compile(r"(?P<name>[-+~]{0,2}[A-Za-z_][\w./-]*)=(?P<value>.*)", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*")


class NothingBehind(InvalidRequest):
    """A masked value was submitted, and there is no original value for it."""

    def __init__(self, field: str, name: str) -> None:
        super().__init__(
            field,
            f"{field}: {name} is {MASK}, the placeholder of a hidden value, but the run "
            "this one is copied from has no such value. Enter the value itself, or remove it.",
        )


def is_secret_variable(name: str, value: str = "") -> bool:
    """Whether an environment variable is named like a secret; when in doubt, yes."""
    words = _words(name).upper().split()
    if value.strip().lower() in _ON_OFF or (words and words[-1] in _PLACES and value[:1] in ("/", "~", ".")):
        return False
    return any(_is_secret_word(words, position) for position in range(len(words))) and name not in (
        "PWD",
        "OLDPWD",
    )


def is_secret_argument(name: str) -> bool:
    """Whether an option is named like a secret: by its last word, except for the keys and tokens of training code."""
    words = _words(name).lower().split()
    if not words:
        return False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    if last == "id" and words[-3:-1] == ["access", "key"]:
        return True
    if last in ("key", "keys"):
        return before not in _NOT_SECRET_KEYS
    if last in ("token", "tokens"):
        return last == "token" and not _NOT_SECRET_TOKENS & set(words)
    return last in _ARGUMENT_ENDS


def masked_text(text: str) -> str:
    """The text with passwords in URLs, values after Authorization or Bearer, and tokens of this program masked."""
    text = _URL_USER.sub(_without_password, text)
    text = _URL_QUERY.sub(_without_value, text)
    text = _HEADER.sub(rf"\g<name>\g<colon>{MASK}", text)
    text = _BEARER.sub(rf"\g<word> {MASK}", text)
    text = _COOKIE.sub(rf"\g<name>={MASK}", text)
    return _OWN_TOKEN.sub(rf"\g<kind>{MASK}", text)


def masked_variable(name: str, value: str) -> str:
    """A variable's value, masked where it is secret."""
    return MASK if value and is_secret_variable(name, value) else masked_text(value)


def masked_env(env: Mapping[str, str]) -> dict[str, str]:
    """The variables with secrets masked."""
    return {name: masked_variable(name, value) for name, value in env.items()}


def masked_args(args: Sequence[str]) -> list[str]:
    """The arguments of a command with secrets masked: `--api-key=…`, `--wandb-key …`, `wandb.api_key=…`."""
    return [f"{argument.before}{argument.masked}" for argument in _taken_apart(args)]


def masked_changes(changes: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of a spec that differ for an attempt, with secrets in arguments masked."""
    fields = dict(changes or {})
    return fields | {"args": masked_args(fields["args"])} if "args" in fields else fields


def masked_spec(spec: RunSpec) -> RunSpec:
    """The specification with secrets masked."""
    changed = {
        "target": masked_text(spec.target),
        "stage": {name: masked_text(source) for name, source in spec.stage.items()},
        "env": masked_env(spec.env),
        "args": masked_args(spec.args),
        "slurm": spec.slurm.model_copy(update={"options": masked_args(spec.slurm.options)}),
    }
    return spec.model_copy(update=changed)


def has_mask(spec: RunSpec) -> bool:
    """Whether any value of the specification is masked."""
    return any(
        MASK in text
        for text in (spec.target, *spec.stage.values(), *spec.env.values(), *spec.args, *spec.slurm.options)
    )


def unmasked_spec(spec: RunSpec, like: RunSpec | None) -> RunSpec:
    """The specification with masked values replaced by those of `like`, the unmasked original.

    Raises NothingBehind when `like` has no such value."""
    if not has_mask(spec):
        return spec
    options = like.slurm.options if like else []
    changed = {
        "target": _unmasked_target(spec.target, like.target if like else ""),
        "stage": _unmasked_stage(spec.stage, like.stage if like else {}),
        "env": _unmasked_env(spec.env, like.env if like else {}),
        "args": _unmasked_args("args", spec.args, like.args if like else []),
        "slurm": spec.slurm.model_copy(update={"options": _unmasked_args("slurm", spec.slurm.options, options)}),
    }
    return spec.model_copy(update=changed)


@dataclass(frozen=True)
class _Word:
    """One argument of a command: the option it belongs to, the text before its value, and the value."""

    name: str
    before: str
    value: str

    @property
    def masked(self) -> str:
        value = self.value
        if not value or value.lower() in _ON_OFF or not is_secret_argument(self.name):
            return masked_text(value)
        is_figure = re.fullmatch(r"\d{1,6}", value) and not re.search(r"(?i)pass|pwd|secret", self.name)
        return value if is_figure else MASK


def _taken_apart(args: Sequence[str]) -> Iterator[_Word]:
    option = ""
    for argument in args:
        assigned = _ASSIGNED.fullmatch(argument)
        if assigned is not None:
            yield _Word(_bare(assigned["name"]), f"{assigned['name']}=", assigned["value"])
            option = ""
        elif _OPTION.fullmatch(argument):
            yield _Word("", argument, "")
            option = "" if _words(argument).lower().split()[0] in _SWITCHES else _bare(argument)
        else:
            yield _Word(option, "", argument)
            option = ""


def _bare(name: str) -> str:
    return name.lstrip("-+~").replace("-", "_").lower()


def _unmasked_target(target: str, original: str) -> str:
    if MASK not in target:
        return target
    if masked_text(original) != target:
        raise NothingBehind("target", "the password in the address")
    return original


def _unmasked_stage(stage: Mapping[str, str], original: Mapping[str, str]) -> dict[str, str]:
    for name, source in stage.items():
        if MASK in source and masked_text(original.get(name, "")) != source:
            raise NothingBehind("stage", name)
    return {name: original[name] if MASK in source else source for name, source in stage.items()}


def _unmasked_env(env: Mapping[str, str], original: Mapping[str, str]) -> dict[str, str]:
    masked = masked_env(original)
    for name, value in env.items():
        if MASK in value and masked.get(name) != value:
            raise NothingBehind("env", name)
    return {name: original[name] if MASK in value else value for name, value in env.items()}


def _unmasked_args(field: str, args: Sequence[str], original: Sequence[str]) -> list[str]:
    """Replace masked arguments by the original's, matched by option name, each original value used once in order."""
    unused = list(_taken_apart(original))
    unmasked = []
    for argument in _taken_apart(args):
        if MASK in argument.value:
            match = next((r for r in unused if (r.name, r.masked) == (argument.name, argument.value)), None)
            if match is None:
                raise NothingBehind(field, argument.name or "an argument")
            unused.remove(match)
            argument = _Word(argument.name, argument.before, match.value)
        unmasked.append(f"{argument.before}{argument.value}")
    return unmasked


def _is_secret_word(words: Sequence[str], position: int) -> bool:
    candidate, neighbours = (
        words[position],
        {*words[max(0, position - 2) : position], *words[position + 1 : position + 2]},
    )
    if candidate in ("TOKEN", "TOKENS"):
        return not neighbours & _COUNTED
    if candidate in ("KEY", "KEYS"):
        return not neighbours & (_MEASURED | {"NUM", "MAX"})
    return candidate in _SECRET_WORDS or _SECRET_PART.search(candidate) is not None


def _words(name: str) -> str:
    """The words of `apiKey`, `api-key` or `API_KEY`, separated by spaces."""
    return re.sub(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])", " ", name).strip()


def _without_password(match: re.Match[str]) -> str:
    scheme, user, password = match["scheme"], match["user"], match["password"]
    if password is not None:
        return f"{scheme}://{user}:{MASK}@"
    return f"{scheme}://{MASK}@" if user and scheme.lower() in ("http", "https") else match[0]


def _without_value(match: re.Match[str]) -> str:
    is_secret = is_secret_argument(match["name"][1:]) or re.search(r"(?i)\b(sig|signature)$", match["name"])
    return f"{match['name']}={MASK}" if is_secret else match[0]
