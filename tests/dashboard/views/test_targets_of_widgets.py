"""Every widget that changes something has the identity of its target in its key, and is given the target when drawn.

One key for all objects lets what was clicked on one change another: Streamlit keeps the state and the pending click of
a widget by its key, whatever the page shows by then."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dashboard.views import page_list

VIEWS = Path(page_list.__file__).parent
BUTTONS = {"button", "menu_button", "form_submit_button"}
WIDGETS = BUTTONS | {
    "checkbox", "toggle", "selectbox", "multiselect", "radio", "pills", "segmented_control", "slider", "text_input",
    "text_area", "number_input", "date_input", "data_editor", "dataframe", "tabs", "expander", "popover",
}  # fmt: skip
CALLBACKS = {"on_click", "on_change", "on_select"}

WITHOUT_TARGET = {
    # They make something new, of the fields beside them; nothing that exists is changed.
    "alert_set": "an alert", "invite_make": "an invitation", "join_make": "a join token", "launch_now": "a run",
    "launch_freeze": "a lock of the form's Python", "preflight_run": "a preflight",
    "Make a token": "an access token", "Set": "a secret, by the name in the form",
    "Start the study": "a study of the form",
    # They act on the visitor, and there is only one.
    "Save": "one's account", "sign_out_others": "one's browsers", "sign_out_everywhere": "one's browsers",
    # They change what this page shows, or fill the form, and nothing that is stored.
    "runs_deleted": "opens a list", "deleted_close": "the message", "close_node": "the panel",
    "tokens_more": "the list", "audit_more": "the list", "launch_clear": "the form", "launch_recent": "the form",
    "run_tab": "the tab", "empty_checkpoint_bin": "opens a question",
}  # fmt: skip
"""Keys, or labels of what has none, of widgets that act on no object; each with what it acts on."""
FIELDS = {
    "alerts_page": {"alert_rule", "alert_limit", "alert_series", "alert_act", "alert_factor", "alert_to_browser",
                    "alert_target", "alert_project"},
    "people/people_page": {"invite_email", "invite_role", "invite_project", "invite_days"},
    "nodes/joining": {"join_for", "join_name"},
    "layout/sharing": {"share_for"},
    "nodes/nodes_page": {"preflight_nodes", "preflight_bandwidth"},
    "people/account_page": {"account_email", "account_old", "account_new", "token_name", "token_scope", "token_project",
                     "token_lasts"},
    "people/secrets_section": {"secret_name", "secret_value", "secret_owner"},
    "launch/code": {"launch_recent", "launch_uploaded"},  # they fill the form
    "run/run_page": {"run_tab", "id"},  # the tab goes into the address, which is of the run that it names
}  # fmt: skip
"""What the forms that make something new are filled in with: callbacks of a module may read this, and nothing else."""


@dataclass(frozen=True)
class Widget:
    """A call that draws a widget."""

    module: str
    call: ast.Call
    function: ast.FunctionDef
    constants: dict[str, str]

    @property
    def where(self) -> str:
        return f"{self.module}:{self.call.lineno}"

    @property
    def keywords(self) -> dict[str, ast.expr]:
        return {one.arg: one.value for one in self.call.keywords if one.arg}

    @property
    def acts(self) -> bool:
        """Whether a click does something but rerun the page."""
        callbacks = [value for name, value in self.keywords.items() if name in CALLBACKS]
        is_button = isinstance(self.call.func, ast.Attribute) and self.call.func.attr in BUTTONS
        return is_button or any(not isinstance(value, ast.Constant) for value in callbacks)

    def fixed_key(self) -> str | None:
        """The key if it is the same for all objects, the label if there is none; None where it names its target."""
        key = self._resolved(self.keywords.get("key"))
        if key is None:
            label = self.call.args[0] if self.call.args else None
            return label.value if isinstance(label, ast.Constant) else ast.unparse(label) if label else "?"
        return str(key.value) if isinstance(key, ast.Constant) else None

    def _resolved(self, key: ast.expr | None) -> ast.expr | None:
        """The expression that a key is, through names of this function and constants of its module."""
        if isinstance(key, ast.BinOp) and isinstance(key.op, ast.Add):
            left, right = self._resolved(key.left), self._resolved(key.right)
            both = isinstance(left, ast.Constant) and isinstance(right, ast.Constant)
            return ast.Constant(f"{left.value}{right.value}") if both else key  # type: ignore[union-attr]
        if isinstance(key, ast.JoinedStr):
            parts = [one.value if isinstance(one, ast.FormattedValue) else one for one in key.values]
            texts = [self._resolved(one) for one in parts]
            is_fixed = all(isinstance(one, ast.Constant) for one in texts)
            return ast.Constant("".join(str(one.value) for one in texts)) if is_fixed else key  # type: ignore[union-attr]
        if not isinstance(key, ast.Name):
            return key
        if key.id in self.constants:
            return ast.Constant(self.constants[key.id])
        assigned = [value for name, value in _assignments(self.function) if name == key.id]
        return self._resolved(assigned[-1]) if assigned else key


def _assignments(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The names that are assigned, with the values, also those of tuples."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Name):
                yield target.id, node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=False)
                yield from ((one.id, value) for one, value in pairs if isinstance(one, ast.Name))


def constants_of(tree: ast.Module) -> dict[str, str]:
    """The texts that a module names."""
    named = [pair for node in tree.body if isinstance(node, ast.Assign) for pair in _assignments(node)]
    return {name: str(value.value) for name, value in named if isinstance(value, ast.Constant)}


def functions_of(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def widgets_of(name: str, tree: ast.Module) -> list[Widget]:
    constants, widgets = constants_of(tree), dict[int, Widget]()
    for function in functions_of(tree).values():  # the innermost one last
        for call in ast.walk(function):
            is_widget = (
                isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in WIDGETS
            )
            if is_widget and isinstance(call, ast.Call):
                widgets[id(call)] = Widget(name, call, function, constants)
    return list(widgets.values())


def without_identity(name: str, source: str) -> list[str]:
    """The widgets of a module that act and whose key is the same for all objects."""
    acting = [widget for widget in widgets_of(name, ast.parse(source)) if widget.acts]
    fixed = [(widget, widget.fixed_key()) for widget in acting]
    return [f"{widget.where}: {key}" for widget, key in fixed if key is not None and key not in WITHOUT_TARGET]


def read_when_clicked(name: str, source: str) -> list[str]:
    """What the callbacks of a module read from the session or the address by a key that names no target."""
    tree = ast.parse(source)
    functions, constants = functions_of(tree), constants_of(tree)
    allowed = FIELDS.get(name, set())
    reached = _reached(_called_back(tree), functions)
    read = ((one, key) for one in sorted(reached) for key in _keys_read(functions[one], constants))
    return [f"{name}.{one}: {key}" for one, key in read if key not in allowed]


def _called_back(tree: ast.Module) -> set[str]:
    """The names that widgets, and the buttons of dialogs, are given to be called."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    given: list[ast.AST] = []
    for call in calls:
        attribute = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if attribute in WIDGETS:
            given += [one.value for one in call.keywords if one.arg in CALLBACKS | {"args", "kwargs"}]
        elif attribute in {"confirm", "attempt", "act_or_ask", "end_or_ask", "told"}:
            given += call.args
    return {node.id for value in given for node in ast.walk(value) if isinstance(node, ast.Name)}


def _reached(names: set[str], functions: dict[str, ast.FunctionDef]) -> set[str]:
    """The functions of these names, and those that they call in turn."""
    waiting, reached = [name for name in names if name in functions], set[str]()
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            called = {node.id for node in ast.walk(functions[name]) if isinstance(node, ast.Name)}
            waiting += [one for one in called if one in functions]
    return reached


def _keys_read(function: ast.FunctionDef, constants: dict[str, str]) -> Iterator[str]:
    """The fixed keys by which a function reads widgets' values from the session, or the address."""
    aliases = {name for name, value in _assignments(function) if ast.unparse(value).endswith("session_state")}
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            holder, key = node.value, node.slice
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and node.args
        ):
            holder, key = node.func.value, node.args[0]
        else:
            continue
        holds = ast.unparse(holder)
        if not (holds in aliases or holds.endswith(("session_state", "query_params"))):
            continue
        text = (
            key.value if isinstance(key, ast.Constant) else constants.get(key.id) if isinstance(key, ast.Name) else None
        )
        if text is not None:
            yield str(text)


PATHS = [path for path in sorted(VIEWS.rglob("*.py")) if path.stem != "__init__"]
MODULES = {str(path.relative_to(VIEWS).with_suffix("")): path.read_text(encoding="utf-8") for path in PATHS}


@pytest.mark.parametrize("name", MODULES)
def test_keys_of_widgets_that_act_name_their_target(name: str) -> None:
    assert without_identity(name, MODULES[name]) == [], "put the object's id into the key (or see WITHOUT_TARGET)"


@pytest.mark.parametrize("name", MODULES)
def test_targets_are_given_when_the_widget_is_drawn(name: str) -> None:
    assert read_when_clicked(name, MODULES[name]) == [], "give the callback what it acts on (or see FIELDS)"


def test_no_exception_is_left_over() -> None:
    widgets = [widget for name, source in MODULES.items() for widget in widgets_of(name, ast.parse(source))]
    assert {*WITHOUT_TARGET} <= {str(widget.fixed_key()) for widget in widgets if widget.acts}


SHARED_KEY = """
def _projects(project):
    st.toggle("Private", key="project_private", on_change=_set_privacy, args=(project.name,))

def _set_privacy(project):
    service.current().people.set_privacy(project, st.session_state["project_private"])
"""
KEY_BY_WAY_OF_A_NAME = """
KEY = "stop"
def _stop(study):
    key = KEY
    st.button("Stop", key=key, on_click=_end, args=(study.id,))
"""
READ_WHEN_CLICKED = """
CHOSEN = "project"
def _buttons(project):
    st.button("Give", key=f"give_{project}", on_click=actions.attempt, args=(partial(_give, 1), "refused"))

def _give(role):
    _carry_out(role)

def _carry_out(role):
    state = st.session_state
    service.current().people.set_role(state[CHOSEN], role)
"""


def test_the_rule_sees_the_fault_that_it_is_for() -> None:
    assert without_identity("people_page", SHARED_KEY) == ["people_page:3: project_private"]
    assert read_when_clicked("people_page", SHARED_KEY) == ["people_page._set_privacy: project_private"]
    assert without_identity("scaling_page", KEY_BY_WAY_OF_A_NAME) == ["scaling_page:5: stop"]
    assert read_when_clicked("people_page", READ_WHEN_CLICKED) == ["people_page._carry_out: project"]


# Clicks act for the visitor.

ASKING = {"service.current()", "permissions.visitor()"}
ENTERING = {"visitor.acts", "actions.told"}
DRAWING = {"cells", "kept_form", "upload_code", "search"}
"""Components of ours that take a callback by its place."""


def without_visitor(name: str, source: str) -> list[str]:
    """The callbacks of a module that ask for the service or the visitor, and enter nobody's rights before."""
    tree = ast.parse(source)
    given = {value.id for call in ast.walk(tree) if isinstance(call, ast.Call) for value in _callbacks(call)}
    functions = [function for function in functions_of(tree).values() if function.name in given]
    return [f"{name}.{function.name}" for function in functions if _asks(function) and not _enters(function)]


def _callbacks(call: ast.Call) -> list[ast.Name]:
    by_name = [keyword.value for keyword in call.keywords if keyword.arg and keyword.arg.startswith("on_")]
    by_place = call.args if isinstance(call.func, ast.Name | ast.Attribute) and _name(call.func) in DRAWING else []
    return [value for value in (*by_name, *by_place) if isinstance(value, ast.Name)]


def _name(function: ast.Name | ast.Attribute) -> str:
    return function.id if isinstance(function, ast.Name) else function.attr


def _asks(node: ast.AST) -> bool:
    """Whether this code asks; functions defined in it do not count, since `actions` calls them for the visitor."""
    if isinstance(node, ast.Call) and ast.unparse(node) in ASKING:
        return True
    parts = ast.iter_child_nodes(node)
    return any(_asks(part) for part in parts if not isinstance(part, ast.Lambda | ast.FunctionDef))


def _enters(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator) in ENTERING for decorator in function.decorator_list)


@pytest.mark.parametrize("name", MODULES)
def test_callbacks_act_for_the_visitor(name: str) -> None:
    assert without_visitor(name, MODULES[name]) == [], "decorate it with visitor.acts or actions.told"


CALLBACK = """
st.button("Stop", on_click=_stop)
{decorator}
def _stop():
    service.current().stop("run")
"""


@pytest.mark.parametrize(("decorator", "faults"), [("", ["page._stop"]), ("@visitor.acts", []), ("@actions.told", [])])
def test_the_rule_sees_a_callback_without_a_visitor(decorator: str, faults: list[str]) -> None:
    assert without_visitor("page", CALLBACK.format(decorator=decorator)) == faults
