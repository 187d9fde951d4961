"""What a model card says, and that nobody's text does anything in it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from domain.checkpoint_use.model_card import CardFacts, is_unedited, model_card
from domain.spec import RunSpec
from domain.views import CheckpointView, RunView


def facts(**more: Any) -> CardFacts:
    spec = RunSpec.model_validate({"target": "/home/me/train.py", "precision": "bf16", "strategy": "fsdp"})
    spec = spec.model_copy(update={"snapshot": "5" * 64, "env": {"API_KEY": "k"}})
    run = RunView(**dict.fromkeys((field.name for field in fields(RunView)), None) | {  # type: ignore[arg-type]
        "id": "abcdefghij", "name": "digits", "project": "vision", "spec": spec, "global_batch_size": 256, "lr": 0.003,
    })  # fmt: skip
    saved = CheckpointView(
        id=1, name="ckpt/step_700", attempt=1, step=700, size_bytes=9, received_bytes=9, sha256="a" * 64, complete=True,
        created_at=0.0, loss=0.25, loss_name="val/loss", latest=True, best=True, prefix=None,
    )  # fmt: skip
    made = CardFacts(run, saved, world_size=4, interpreter={"python": "3.12.1", "torch": "2.13.0", "path": "/opt/py"})
    return replace(made, **more)


def rows(card: str) -> dict[str, str]:
    lines = [line.replace("\\", "").strip("| ").split(" | ") for line in card.splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1] for cells in lines if len(cells) == 2}


def test_a_card_says_what_was_trained_and_how() -> None:
    card = model_card(facts(code="main, commit 0123456789", data=["digits: 3 files, SHA-256 abcd"]))
    assert "Step 700 of run digits (abcdefghij) in project vision" in card.replace("\\", "")
    assert rows(card) == {
        "Checkpoint": "step_700", "val/loss": "0.25", "Ranks": "4", "Global batch": "256", "Learning rate": "0.003",
        "Precision": "bf16", "Strategy": "fsdp", "Python": "3.12.1", "torch": "2.13.0",
        "Code": "main, commit 0123456789", "Code snapshot": f"SHA-256 {'5' * 64}",
        "Data": "digits: 3 files, SHA-256 abcd", "SHA-256 as saved": "a" * 64,
    }  # fmt: skip


def test_a_card_has_no_path_no_variable_and_no_note() -> None:
    run = replace(facts().run, note="the seed of the paper")
    card = model_card(facts(run=run)).replace("\\", "")
    assert not any(text in card for text in ("/home/me", "/opt/py", "API_KEY", "paper"))


def test_a_merge_is_told_with_its_proof_and_its_files() -> None:
    file = {"name": "model.safetensors", "size_bytes": 2048, "sha256": "b" * 64}
    card = model_card(facts(merge={"tensors": 12, "proof": {"sums": 12}, "files": [file]}))
    assert rows(card)["Merged"] == "12 tensors of plain names, each compared with the shards after writing"
    assert f"| model\\.safetensors | 2 KiB | {'b' * 64} |" in card


def test_the_header_names_a_library_only_where_it_loads_the_files() -> None:
    assert model_card(facts()).startswith("---\ntags:\n- rankzero\n- pytorch\n---\n")
    assert "library_name: transformers\n" in model_card(facts(loads_in_transformers=True))


def test_pictures_and_the_run_are_linked() -> None:
    card = model_card(facts(url="https://rz.example/run?id=a", pictures={"loss.png": "train/loss"}))
    assert "![train\\/loss](loss.png)" in card and "[digits](https://rz.example/run?id=a)" in card


def test_texts_of_people_are_shown_and_do_nothing() -> None:
    name = "<script>x</script> | [a](http://b) \n---\n# `c` hf_abcdefghijklmnopqrstuvwxyzabcdefgh"
    run = replace(facts().run, name=name, project="![x](http://y)")
    card = model_card(facts(run=run))
    body = card.partition("\n---\n")[2]
    assert "<script>" not in card and "](http" not in card and "\n---\n" not in body
    assert len([line for line in body.splitlines() if line.startswith("#")]) == 1


def test_the_seal_breaks_where_anybody_edits() -> None:
    card = model_card(facts())
    assert is_unedited(card)
    assert not is_unedited(card.replace("digits", "Digits"))
    assert not is_unedited(f"{card}More.\n") and not is_unedited("# Mine\n") and not is_unedited("")
