"""The form's fields for a script's own arguments, read from its source."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import streamlit as st

from dashboard.script_reader import command, targets
from dashboard.script_reader.command import Filled, key_of
from dashboard.script_reader.options import Option
from dashboard.script_reader.proposals import LABELS, Proposal
from dashboard.script_reader.reading import OWN_NAMES, Script
from dashboard.script_reader.source import UnreadableScript
from dashboard.views.launch.fields import PREFIX, RECIPE, named, spec_fields
from dashboard.views.launch.form import EMPTY
from dashboard.views.launch.swept_fields import SweptFields, add
from dashboard.views.layout import style
from domain.spec import PASSED, RunSpec
from domain.sweeps import as_argument, holds_several
from domain.text.formats import as_text, plural


@dataclass(frozen=True)
class ScriptForm:
    """A script's arguments in the form, with their values in the session."""

    script: Script
    mark: str
    """A key that separates this script's fields from another's, so that each keeps its input."""
    free: tuple[str, ...]
    """The extra arguments, which take precedence over every field."""
    decided: Filled
    """The values that the rest of the form sets."""

    @property
    def args(self) -> list[str]:
        """The arguments composed from the fields."""
        return command.compose(self._offered(), self.script.proposals, self.filled(), self.free)

    @property
    def refusals(self) -> dict[str, str]:
        """Errors of argument values, by the key of their field."""
        typed = [(o, self._typed(o)) for o in self._offered() if o.kind != "switch"]
        problems = [(o, command.problem(o, text)) for o, text in typed if text]
        return {self.key(option): sentence for option, sentence in problems if sentence} | self.swept.refusals

    @property
    def swept(self) -> SweptFields:
        """Numbers of which several values or a range are typed; they are left out of the arguments."""
        swept = SweptFields({})
        for option in self._offered():
            if self._holds_several(option):
                text = str(st.session_state[self.key(option)])
                add(swept, self.key(option), f"{option.name}={text}", option.flag)
        for option in self._offered():
            parameter = swept.parameters.get(option.name)
            problems = [command.problem(option, as_argument(one)) for one in parameter.tried] if parameter else []
            swept.refusals.update({self.key(option): problem for problem in problems if problem})
        return swept

    def own_defaults(self) -> dict[str, Any]:
        """Return the script's defaults for the form's fields that it takes."""
        options = {p.field: self.script.option(p.option) for p in self.script.proposals if self._is_taken(p)}
        return {name: option.default for name, option in options.items() if option is not None}

    @property
    def useless(self) -> frozenset[str]:
        """Fields of the form that have no effect on the script; one that was set once stays in the form."""
        shown_fields: set[str] = st.session_state.setdefault(KEPT, set())
        shown_fields |= {name for name in MAY_BE_USELESS if st.session_state[PREFIX + name] != EMPTY[name]}
        extra = " ".join(self.free)
        return frozenset(
            name
            for name, argument in MAY_BE_USELESS.items()
            if name not in shown_fields and f"{{{argument}}}" not in extra and not self.script.may_take(argument)
        )

    @property
    def unused(self) -> dict[str, str]:
        """Sentences on the form's values that the person has unticked, by field."""
        extra, typed = " ".join(self.free), self.filled().values
        unticked = [
            (p, st.session_state[PREFIX + p.field])
            for p in command.applicable(self.script.proposals, self.decided)
            if p.field in PASSED and p.is_ticked and not self._is_taken(p) and p.option not in typed
            if p.field not in self.script.variables and f"{{{p.field}}}" not in extra
        ]
        return {
            p.field: f"{p.argument} is not ticked: {LABELS[p.field]}, {value}, is not used."
            for p, value in unticked
            if value != EMPTY[p.field]
        }

    def filled(self) -> Filled:
        """Return the ticked proposals and the changed values."""
        values = {option.name: self._typed(option) for option in self.script.options}
        changed = {name: value for name, value in values.items() if value is not None}
        ticked = [key_of(proposal) for proposal in self.script.proposals if self._is_taken(proposal)]
        return replace(self.decided, values=changed, ticked=ticked)

    def fill(self, args: Sequence[str]) -> list[str]:
        """Write arguments into the fields and return those without a field."""
        filled, untaken = command.take_apart(self.script.options, self.script.proposals, args, self.decided)
        for key in [
            key for key in st.session_state if str(key).startswith((f"{FIELD}{self.mark}", f"{TAKE}{self.mark}"))
        ]:
            del st.session_state[key]
        for option in self.script.options:
            if option.name in filled.values:
                st.session_state[self.key(option)] = filled.values[option.name]
        for proposal in command.applicable(self.script.proposals, self.decided):
            st.session_state[self._take_key(proposal)] = key_of(proposal) in filled.ticked
        return untaken

    def draw(self) -> None:
        """Show the script's arguments, those filled in by the form first."""
        name = as_text(self.script.name)
        if not self.script.options:
            unread = f": {' and '.join(self.script.unread)}" if self.script.unread else ""
            st.caption(as_text(f"No arguments of {self.script.name} could be read from its source{unread}."))
            return
        read_from = " and ".join(self.script.parsers)
        st.markdown(f"**Arguments of {name}**")
        needed = " Fields with a \\* are required." if any(option.required for option in self._offered()) else ""
        unread = f" Those of {' and '.join(self.script.unread)} could not be read." if self.script.unread else ""
        st.caption(
            f"Read from {as_text(read_from)} in its source.{as_text(unread)} Empty fields keep the script's default."
            f"{needed}"
        )
        with st.container():
            self._proposals()
        self._fields()

    def key(self, option: Option) -> str:
        """Return the session key of an argument's value."""
        return f"{FIELD}{self.mark}_{option.name}"

    def _proposals(self) -> None:
        typed = command.named(self.script.options, self.free)
        shown = command.applicable(self.script.proposals, self.decided)
        shown = [proposal for proposal in shown if proposal.option not in typed]
        if not shown:
            return
        with st.container(horizontal=True, gap="small", key="launch_proposals"):
            st.caption("Filled in from this form:", width="content")
            for proposal in shown:
                st.session_state.setdefault(self._take_key(proposal), proposal.is_ticked)
                key = self._take_key(proposal)
                with style.explained(key, as_text(proposal.reason), "content"):
                    st.checkbox(f"`{proposal.argument}`", key=key, width="content", persist_state="session")
        for sentence in self.unused.values():
            st.markdown(f":material/warning: {as_text(sentence)}")

    def _fields(self) -> None:
        proposed = {proposal.option for proposal in self.script.proposals if self._shows_as_taken(proposal)}
        typed = command.named(self.script.options, self.free)
        own = [o for o in self._offered() if o.name not in GIVEN_BY_LAUNCHER and (o.kind != "switch" or _can_change(o))]
        offered = [option for option in own if option.name not in proposed | typed]
        first = own if len(offered) <= MOST_AT_ONCE else [o for o in own if o.required]
        folded = [option for option in offered if option not in first]
        self._grid("first", first, proposed | typed)
        if folded:
            changed = sum(self._typed(option) is not None for option in folded)
            label = plural(len(folded), "more argument" if first else "argument")
            label += f", {changed} changed" if changed else ""
            with st.expander(label, key="launch_more_arguments", type="compact"):
                self._grid("more", self._searched(folded))
        if typed:
            flags = ", ".join(option.flag for option in self._offered() if option.name in typed)
            st.caption(f"Set in the extra arguments: {as_text(flags)}")

    def _searched(self, options: list[Option]) -> list[Option]:
        if len(options) <= MOST_WITHOUT_SEARCH:
            return options
        query = st.text_input(
            "Search the arguments", key=f"launch_sought_{self.mark}", live=True, placeholder="name or help",
            label_visibility="collapsed", icon=":material/search:", persist_state="session",
        )  # fmt: skip
        terms = query.lower().replace("-", "_").split()
        matching = [o for o in options if all(w in f"{o.name} {o.help or ''}".lower().replace("-", "_") for w in terms)]
        hidden = len(matching) - MOST_WITHOUT_SEARCH + 1
        if hidden > 0:
            st.caption(f"The first {MOST_WITHOUT_SEARCH - 1} of {len(matching)}; search for the others.")
        return matching[: MOST_WITHOUT_SEARCH - 1]

    def _grid(self, key: str, options: Sequence[Option], hidden: Collection[str] = ()) -> None:
        """Show fields side by side, each in a place of its own, as `Fields.places` does."""
        with st.container(key=f"grid_{key}"):
            for option in options:
                with st.container():
                    if option.name not in hidden:
                        self._field(option)

    def _field(self, option: Option) -> None:
        key = self.key(option)
        sentence = self.refusals.get(key)
        with style.explained(key, as_text(option.help) if option.help and not sentence else None):
            self._input(option, key)
        if sentence is not None:
            with st.container(key=f"refusal_{key}"):
                st.markdown(f":red[{as_text(sentence)}]")

    def _input(self, option: Option, key: str) -> None:
        # Screen readers read the label literally, so it is escaped only where needed.
        label = option.flag if PLAIN_FLAG.fullmatch(option.flag) else as_text(option.flag)
        label += " *" if option.required else ""
        if option.kind == "switch":
            st.session_state.setdefault(key, bool(option.default))
            st.toggle(label, key=key, persist_state="session")
        elif option.choices and option.kind not in ("values", "repeated", "positionals"):
            choices = [str(choice) for choice in option.choices]
            if st.session_state.get(key) not in (None, *choices):
                del st.session_state[key]
            st.selectbox(label, choices, index=None, key=key, placeholder=_shown(option), persist_state="session")
        else:
            st.text_input(
                label, key=key, placeholder=_shown(option), live=True, autocomplete="off",
                persist_state="session",
            )  # fmt: skip

    def _offered(self) -> list[Option]:
        """Return the options of the chosen subcommand and the global ones."""
        chosen = self._command()
        return [option for option in self.script.options if option.command in (None, chosen)]

    def _command(self) -> str | None:
        for proposal in self.script.proposals:
            if proposal.field == "command" and self._is_taken(proposal):
                return proposal.argument
        option = self.script.option("command")
        typed = self._typed(option) if option else None
        return (
            typed if isinstance(typed, str) else next((argument for argument in self.free if argument[:1] != "-"), None)
        )

    def _typed(self, option: Option) -> Any:
        """Return an argument's value; None where it is the script's default."""
        stored = st.session_state.get(self.key(option))
        if self._holds_several(option):
            return None
        if option.kind == "switch":
            return stored if isinstance(stored, bool) and stored != bool(option.default) else None
        text = str(stored or "").strip()
        return None if text in ("", str(option.default)) else text

    def _holds_several(self, option: Option) -> bool:
        is_number = option.type in ("int", "float") and option.kind in ("value", "override")
        return is_number and holds_several(str(st.session_state.get(self.key(option)) or ""))

    def _is_taken(self, proposal: Proposal) -> bool:
        return bool(st.session_state.get(self._take_key(proposal), proposal.is_ticked))

    def _shows_as_taken(self, proposal: Proposal) -> bool:
        return self._is_taken(proposal) and bool(command.applicable([proposal], self.decided))

    def _take_key(self, proposal: Proposal) -> str:
        return f"{TAKE}{self.mark}_{key_of(proposal)}"


MOST_AT_ONCE = 8
"""Number of arguments above which optional ones are collapsed."""
MOST_WITHOUT_SEARCH = 25
PLAIN_FLAG = re.compile(r"-{0,2}[A-Za-z0-9]+([._-][A-Za-z0-9]+)*")
GIVEN_BY_LAUNCHER = ("local_rank",)
FIELD, TAKE = "launch_own_", "launch_take_"
STRATEGY_FROM = "launch_strategy_from"
KEPT, USELESS = "launch_kept", "launch_kept_useless"
MAY_BE_USELESS = {"lr_scaling" if name == "lr" else name: name for name in OWN_NAMES}
"""Fields that many scripts cannot take, each with the value that would have to reach the script."""


def form_of(values: Mapping[str, Any]) -> ScriptForm | None:
    """Return the arguments of the named script; None where it cannot be read."""
    fields = spec_fields(values)
    location = [fields.get(name) for name in ("target", "entry", "module", "snapshot")]
    if not location[0] or values["source"] == RECIPE:
        return None
    try:
        script = targets.read_target(location[0], *location[1:])
    except UnreadableScript:  # what is wrong with the file is among the warnings of its plan
        return None
    # By the user's name for it: both versions of the code share their input.
    names = (named(values), str(values["entry"]), str(values["module"]))
    mark = hashlib.sha256("\0".join(names).encode(errors="replace")).hexdigest()[:10]
    return ScriptForm(script, mark, _words(values["args"]), _decided(values))


def useless_fields(form: ScriptForm | None, is_named: bool) -> frozenset[str]:
    """Return the fields that have no effect; while no code is named, as while a path is typed, those of the last
    script, so that the form stays as it is."""
    if form is not None:
        st.session_state[USELESS] = form.useless
    elif is_named:
        st.session_state.pop(USELESS, None)
    useless: frozenset[str] = st.session_state.get(USELESS, frozenset())
    return useless


def follow_strategy(form: ScriptForm | None, key: str) -> None:
    """Select the strategy that fits the script when it is named, unless the user has chosen another."""
    last_mark, last_strategy = st.session_state.get(STRATEGY_FROM, (None, "ddp"))
    mark, strategy = (form.mark, form.script.guess.strategy) if form else (None, "ddp")
    if mark == last_mark:
        return
    if st.session_state.get(key) == last_strategy:
        st.session_state[key] = strategy
    st.session_state[STRATEGY_FROM] = (mark, strategy)


def fill_from(spec: RunSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    """Write a run's arguments into its script's fields; returns the remaining values of the form."""
    form = form_of(values)
    if form is None:
        return dict(values)
    st.session_state[STRATEGY_FROM] = (form.mark, spec.strategy)
    is_other = spec.launcher is None and form.script.guess.launcher != spec.effective_launcher
    launcher = spec.effective_launcher if is_other and spec.strategy in ("ddp", "fsdp") else values["launcher"]
    return {**values, "args": shlex.join(form.fill(spec.args)), "launcher": launcher}


def forget() -> None:
    """Clear the fields of every script."""
    for key in [key for key in st.session_state if str(key).startswith((FIELD, TAKE, KEPT))]:
        del st.session_state[key]


def _can_change(option: Option) -> bool:
    return (option.off if option.default else option.on) is not None


def _shown(option: Option) -> str:
    if option.default in (None, "", []):
        return "several values" if option.kind in ("values", "repeated", "positionals") else option.type or ""
    return shlex.join(map(str, option.default)) if isinstance(option.default, list) else str(option.default)


def _decided(values: Mapping[str, Any]) -> Filled:
    is_set = [name for name in LABELS if str(values.get(name) or "").strip()]
    return Filled(precision=str(values["precision"]), accumulate=_count(values["accumulate"]), decided=is_set)


def _words(text: Any) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(str(text or "")))
    except ValueError:
        return ()


def _count(text: Any) -> int:
    try:
        return int(str(text))
    except ValueError:
        return 1
