"""When nodes can train together, and the sentence when they cannot."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from domain.preflight import MOST_NAMED, NodeInterpreter, names, version_disagreement, version_remark


def python(torch="2.13.0+cu126", cuda="12.6", nccl="2.21.5", path="/usr/bin/python", **more):
    return {"path": path, "python": "3.11.8", "torch": torch, "cuda": cuda, "nccl": nccl} | more


def nodes_with(**interpreters) -> list[NodeInterpreter]:
    return [NodeInterpreter(node.replace("_", "-"), interpreter) for node, interpreter in interpreters.items()]


def test_the_same_everywhere_agrees():
    assert version_disagreement(nodes_with(gpu_1=python(), gpu_2=python(path="/opt/env/bin/python"))) is None


def test_nodes_with_another_torch_are_named_with_their_interpreters():
    old = python("2.12.1+cu126", path="/opt/old/bin/python")
    assert version_disagreement(nodes_with(gpu_1=python(), gpu_2=old, gpu_3=python())) == (
        "The nodes disagree on torch: gpu-1 and gpu-3 have torch 2.13.0+cu126 (/usr/bin/python), "
        "gpu-2 has torch 2.12.1+cu126 (/opt/old/bin/python). "
        "Install the same everywhere, or choose one interpreter for all nodes with --python."
    )


def test_cuda_and_nccl_have_to_agree_too():
    text = version_disagreement(
        nodes_with(a=python(), b=python("2.13.0+cu128", "12.8", "2.27.3"), c=python("2.13.0+cpu", None, None))
    )
    assert text.startswith(
        "The nodes disagree on CUDA and NCCL: a has torch 2.13.0+cu126, CUDA 12.6, NCCL 2.21.5 (/usr/bin/python), "
        "b has torch 2.13.0+cu128, CUDA 12.8, NCCL 2.27.3 (/usr/bin/python), "
        "c has torch 2.13.0+cpu, CUDA none, NCCL unknown (/usr/bin/python). "
    )


def test_how_a_version_is_written_is_no_difference():
    conda = python("2.13.0", "12.6.85", "2.21.5.1")
    assert version_disagreement(nodes_with(a=python(), b=conda, c=python(nccl=None))) is None


def test_builds_for_rocm_and_for_the_cpu_differ():
    rocm, cpu = python("2.9.0+rocm6.4", None, None, rocm="6.4.1"), python("2.9.0+cpu", None, None, rocm=None)
    assert "disagree on ROCm" in version_disagreement(nodes_with(a=rocm, b=cpu))


def test_a_crowd_is_counted():
    crowd = [NodeInterpreter(f"n{i}", python()) for i in range(64)] + [NodeInterpreter("odd", python("2.4.0"))]
    text = version_disagreement(crowd)
    assert f"n{MOST_NAMED - 1} and {64 - MOST_NAMED} more have" in text and "odd has torch 2.4.0" in text
    assert len(text) < 400


def test_another_python_is_worth_a_remark_only():
    interpreters = nodes_with(a=python(), b=python(python="3.12.1"), c=python(python="3.11.2"))
    assert version_disagreement(interpreters) is None
    assert version_remark(interpreters) == "the nodes train with different Pythons: 3.11 on a and c, 3.12 on b"
    assert version_remark(nodes_with(a=python(), b=python(python="3.11.9"))) is None


def test_who_is_waited_for():
    assert names(["gpu-2"]) == "gpu-2"
    assert names(["a", "b", "c"]) == "a, b and c"


VERSIONS = ["2.13.0", "2.13.0+cu126", "2.12.1", "12.6", "12.8.1", "", "git"]
words = st.none() | st.sampled_from(VERSIONS) | st.text("0123456789.+acu", max_size=12)
answers = st.fixed_dictionaries({}, optional=dict.fromkeys(("torch", "cuda", "nccl", "rocm", "path", "python"), words))
groups = st.lists(answers, min_size=1, max_size=6)


@given(groups, st.randoms())
def test_the_order_of_the_nodes_does_not_matter(interpreters, chance):
    nodes = [NodeInterpreter(f"n{i}", facts) for i, facts in enumerate(interpreters)]
    mixed = list(nodes)
    chance.shuffle(mixed)
    assert (version_disagreement(nodes) is None) == (version_disagreement(mixed) is None)
    assert (version_remark(nodes) is None) == (version_remark(mixed) is None)


@given(groups, st.integers(0, 5))
def test_one_more_node_like_another_changes_nothing(interpreters, which):
    nodes = [NodeInterpreter(f"n{i}", facts) for i, facts in enumerate(interpreters)]
    twin = NodeInterpreter("twin", nodes[which % len(nodes)].interpreter)
    assert (version_disagreement(nodes) is None) == (version_disagreement([*nodes, twin]) is None)


@given(answers, st.integers(1, 5))
def test_nodes_that_say_the_same_agree(facts, count):
    same = [NodeInterpreter(f"n{i}", facts) for i in range(count)]
    assert version_disagreement(same) is None and version_remark(same) is None


@given(groups)
def test_a_disagreement_names_every_node_and_ends_with_what_to_do(interpreters):
    text = version_disagreement([NodeInterpreter(f"<n{i}>", facts) for i, facts in enumerate(interpreters)])
    if text is not None:
        assert all(f"<n{i}>" in text for i in range(len(interpreters)))
        assert text.endswith("with --python.")
