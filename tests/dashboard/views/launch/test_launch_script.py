"""The form knows the script: its arguments are fields, and what the form decides is handed over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from db.runs import run_queries, run_requests
from domain.spec import RunSpec
from tests.dashboard.pages import Pages, button, served, texts

SCRIPT = """
import argparse, os
import torch.distributed as dist
p = argparse.ArgumentParser()
p.add_argument("data", help="folder of the images")
p.add_argument("--arch", default="resnet18", choices=["resnet18", "resnet50"], help="the model")
p.add_argument("--epochs", default=90, type=int)
p.add_argument("-b", "--batch-size", default=256, type=int, help="per process")
p.add_argument("--lr", default=0.1, type=float)
p.add_argument("--lr-decay", default=0.3, type=float)
p.add_argument("--resume", default="")
p.add_argument("--amp", action="store_true")
p.add_argument("--workers", default=4, type=int)
rank = int(os.environ["RANK"])
print(p.parse_args())
"""


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[Pages]:
    with served(tmp_path / "data") as opened:
        opened.seed.node("here", 2, kind="cpu")
        yield opened


@pytest.fixture
def script(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    return folder / "train.py"


def open_form(pages: Pages, script: Path) -> AppTest:
    page = pages.open("launch")
    page.segmented_control(key="launch_source").set_value("Script").run()
    return fill(page, script=str(script))


def fill(page: AppTest, **values: str) -> AppTest:
    for name, value in values.items():
        page.text_input(key=f"launch_{name}").set_value(value)
    page = page.run()
    assert not page.exception
    return page


def own(page: AppTest, label: str):
    """The field of one of the script's arguments, by the flag it shows."""
    widgets = [*page.text_input, *page.selectbox, *page.toggle]
    return next(one for one in widgets if one.label.removesuffix(" *") == label)


def labels(page: AppTest) -> set[str]:
    widgets = [*page.text_input, *page.selectbox, *page.toggle]
    return {one.label for one in widgets}


def tick(page: AppTest, argument: str):
    return next(one for one in page.checkbox if one.label == f"`{argument}`")


def command(page: AppTest) -> str:
    """What would be started, from the script on."""
    return str(page.code[-1].value).split("train.py", 1)[1].strip()


def specs(pages: Pages) -> list[RunSpec]:
    return [run.spec for run in run_queries.runs(pages.service.store, pages.service.clock())]


def test_a_scripts_arguments_are_fields_that_add_nothing_until_they_are_changed(pages, script):
    page = open_form(pages, script)
    assert {"data *", "--arch", "--lr-decay", "--amp", "--workers"} <= labels(page)
    assert not {"--lr", "--batch-size"} & labels(page), "these are filled in from the form"
    assert own(page, "--workers").placeholder == "4" and command(page) == ""
    own(page, "data").set_value("/my data")
    own(page, "--arch").set_value("resnet50")
    own(page, "--amp").set_value(True)
    own(page, "--workers").set_value("4").run()
    assert command(page) == "'/my data' --arch=resnet50 --amp"


def test_form_passes_and_scales_its_values(pages, script):
    page = open_form(pages, script)
    page.segmented_control(key="launch_lr_scaling").set_value("linear")
    fill(page, batch_size="32", epochs="3")
    assert command(page) == "--epochs=3 --batch-size=32 --lr=0.2", "the script's own rate, for two ranks"
    assert "64 samples a step" in texts(page)
    tick(page, "--batch-size={batch_size}").set_value(False).run()
    assert "--batch-size" in labels(page)
    assert "is not ticked: the batch per GPU, 32, is not used" in texts(page).replace("\\", "")
    assert "512 samples a step" in texts(page), "the script's own"


def test_free_arguments_win_and_stay_when_the_script_changes(pages, script):
    page = fill(open_form(pages, script), batch_size="32", args="--batch-size 8 --workers=1")
    assert command(page) == "--batch-size 8 --workers=1"
    assert "--workers" not in labels(page)
    assert "already set --batch-size" in texts(page).replace("\\", "")
    other = script.with_name("other.py")
    other.write_text("print(1)")
    fill(page, script=str(other))
    assert page.text_input(key="launch_args").value == "--batch-size 8 --workers=1"


def test_a_value_of_the_wrong_type_is_refused_below_its_field(pages, script):
    page = open_form(pages, script)
    own(page, "--workers").set_value("many").run()
    assert "--workers takes a whole number, got 'many'." in texts(page).replace("\\", "")
    assert button(page, "Launch").disabled
    own(page, "--workers").set_value("{seed}").run()
    assert not button(page, "Launch").disabled


def test_the_launcher_is_guessed_with_its_reason(pages, script):
    page = open_form(pages, script)
    assert "Automatic is **torchrun** here. It reads RANK from the environment, line 14" in texts(page).replace(
        "\\", ""
    )
    script.write_text("import torch.multiprocessing as mp\nmp.spawn(print)")
    page = open_form(pages, script)
    assert "Automatic is **python** here" in texts(page)
    assert page.code[-1].value.startswith("python -u")
    page.segmented_control(key="launch_launcher").set_value("torchrun").run()
    assert page.code[-1].value.startswith("torchrun")
    assert "The launcher is torchrun, but it starts its processes itself" in texts(page).replace("\\", "")


def test_a_script_without_distributed_code_is_one_process_unless_chosen_otherwise(pages, script):
    plain = script.with_name("plain.py")
    plain.write_text("print(1)")
    page = open_form(pages, plain)
    assert page.segmented_control(key="launch_strategy").value == "single"
    fill(page, script=str(script))
    assert page.segmented_control(key="launch_strategy").value == "ddp"
    page.segmented_control(key="launch_strategy").set_value("fsdp").run()
    fill(page, script=str(plain))
    assert page.segmented_control(key="launch_strategy").value == "fsdp"


FEW = {"strategy", "precision", "warmup_steps", "lr_scaling"}


@pytest.mark.parametrize(
    ("source", "hidden"),
    [
        ("import os\nos.environ['RANK']", FEW),
        ("p.add_argument('--width')\nos.environ['RANK']", FEW),
        ("p.add_argument('--lr', type=float)\nos.environ['RANK']", FEW - {"lr_scaling"}),
        ("p.add_argument('--warmup-epochs')\nos.environ['RANK']", FEW - {"warmup_steps"}),
        ("p.add_argument('--amp')\nos.environ['RANK']", FEW - {"precision"}),
        ("os.environ['RANK'], os.environ['RANKZERO_PRECISION']", FEW - {"precision"}),
        ("os.environ['RANK'], os.environ['RANKZERO_WARMUP_STEPS']", FEW - {"warmup_steps"}),
        ("os.environ['RANK'], os.environ['RANKZERO_LR']", FEW - {"lr_scaling"}),
        ("fully_shard(model)\nos.environ['RANK']", FEW - {"strategy"}),
        ("print(1)", FEW - {"strategy"}),  # the reader guesses a single process
        ("import sys\nos.environ['RANK'], sys.argv[1:]", set()),
        ("import fire\nos.environ['RANK']\nfire.Fire(main)", set()),
    ],
)
def test_fields_that_a_script_cannot_take_are_not_asked_for(pages, script, source, hidden):
    script.write_text(source)
    page = open_form(pages, script)
    shown = {field.key for field in (*page.segmented_control, *page.text_input)}
    assert {name for name in FEW if f"launch_{name}" not in shown} == hidden


def test_a_field_that_is_set_stays_and_a_recipe_has_them_all(pages, script):
    script.write_text("os.environ['RANK']")
    page = pages.open("launch")
    page.segmented_control(key="launch_precision").set_value("bf16").run()
    page.segmented_control(key="launch_source").set_value("Script").run()
    fill(page, script=str(script))
    page.segmented_control(key="launch_precision").set_value("fp32").run()
    shown = {field.key for field in (*page.segmented_control, *page.text_input)}
    assert {name for name in FEW if f"launch_{name}" not in shown} == FEW - {"precision"}
    page.segmented_control(key="launch_source").set_value("Recipe").run()
    assert page.text_input(key="launch_warmup_steps").value == ""


def test_many_arguments_are_folded_and_very_many_are_searched(pages, script):
    script.write_text("\n".join(f"p.add_argument('--opt{n}', type=int, default={n})" for n in range(60)))
    page = open_form(pages, script)
    assert "60 arguments" in {one.label for one in page.expander}
    assert len([label for label in labels(page) if label.startswith("--opt")]) == 24
    next(one for one in page.text_input if one.label == "Search the arguments").set_value("opt59").run()
    own(page, "--opt59").set_value("7").run()
    assert command(page) == "--opt59=7"
    assert "60 arguments, 1 changed" in {one.label for one in page.expander}


def test_a_subcommands_arguments_show_once_it_is_chosen(pages, script):
    script.write_text(
        "sub = p.add_subparsers(required=True)\n"
        "t = sub.add_parser('train')\nt.add_argument('--width', type=int)\n"
        "e = sub.add_parser('eval')\ne.add_argument('--height', type=int)\n"
    )
    page = open_form(pages, script)
    assert "--width" in labels(page) and "--height" not in labels(page)
    assert command(page) == "train"
    tick(page, "train").set_value(False).run()
    own(page, "command").set_value("eval").run()
    own(page, "--height").set_value("3").run()
    assert command(page) == "eval --height=3"


def test_a_word_is_only_filled_in_once_there_is_something_to_fill_in(pages, script):
    script.write_text("p.add_argument('total_epochs', type=int)\np.add_argument('save_every', type=int)\nprint(1)")
    page = open_form(pages, script)
    assert {"total_epochs *", "save_every *"} <= labels(page)
    own(page, "save_every").set_value("5")
    fill(page, epochs="3")
    assert "total_epochs *" not in labels(page)
    assert command(page) == "3 5"


def test_a_run_fills_the_form_again_and_launches_as_it_was(pages, script):
    page = open_form(pages, script)
    own(page, "data").set_value("/d")
    own(page, "--amp").set_value(True)
    tick(page, "--epochs={epochs}").set_value(False)
    fill(page, batch_size="16", args="--arch=resnet50")
    button(page, "Launch").click().run()
    (run,) = run_queries.runs(pages.service.store, pages.service.clock())
    page = pages.open("launch", **{"from": run.id})
    assert own(page, "data").value == "/d" and own(page, "--amp").value is True
    assert not tick(page, "--epochs={epochs}").value
    button(page, "Launch").click().run()
    first, second = specs(pages)
    assert first == second
    assert "/d" in second.args and "--batch-size={batch_size}" in second.args


def test_arguments_from_the_command_line_are_kept_to_the_letter(pages, script):
    asked = ["--lr", "{lr}", "--batch-size=3", "/d"]
    spec = RunSpec(target=str(script), gpus_per_node=1, args=asked, lr=0.5)
    run = pages.service.run(pages.service.launch(spec))
    page = pages.open("launch", **{"from": run.id})
    button(page, "Launch").click().run()
    assert [spec.args for spec in specs(pages)] == [asked, asked]


def test_unreadable_script_says_why_and_can_be_launched(pages, script):
    script.write_text("def (:")
    page = open_form(pages, script)
    assert "train.py cannot be read as Python: line 1" in texts(page).replace("\\", "")
    assert page.text_input(key="launch_args") is not None


def test_the_last_script_is_in_the_form_and_recent_ones_are_listed(pages, script):
    folder = script.parent / "package"
    folder.mkdir()
    (folder / "main.py").write_text("print(1)")
    service, specs = pages.service, [
        RunSpec(target="image_classifier"), RunSpec(target=str(folder), entry="main.py"),
        RunSpec(target="/no/longer/here.py"), RunSpec(target=str(script)), RunSpec(target=str(script)),
        RunSpec(target=str(script), entry="train.py"),  # as a launch has it; a watched run has no entry
    ]  # fmt: skip
    for spec in specs:
        run_requests.submit(service.store, spec, service.clock())
    page = pages.open("launch")
    assert page.segmented_control(key="launch_source").value == "Script"
    assert page.text_input(key="launch_script").value == str(script)
    menu = page.menu_button(key="launch_recent")
    assert [label.replace("\\", "") for label in menu.options] == [str(script), f"{folder} main.py"]
    menu.click_index(1).run()
    assert not page.exception and page.text_input(key="launch_script").value == str(folder)
    assert page.text_input(key="launch_entry").value == "main.py"
    run_requests.submit(service.store, specs[0], service.clock())
    page = pages.open("launch")
    assert page.segmented_control(key="launch_source").value == "Recipe"
    assert page.session_state["launch_script"] == str(script)
