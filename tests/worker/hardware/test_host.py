"""The node's own figures are this machine's; InfiniBand and the kernel's log are replayed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from worker.hardware.gpus import KernelLog
from worker.hardware.host import Host

KERNEL_LOG = """\
6,1,100,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module
4,2,200,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
3,3,300,-;Out of memory: Killed process 4711 (pt_main_thread) total-vm:5000kB
3,4,400,-;mce: [Hardware Error]: Machine check events logged
3,5,500,-;mlx5_core 0000:18:00.0 ib0: Link down
6,6,600,-;eth0: renamed from veth1
"""


def write(port: Path, **counters: int) -> None:
    for name, value in counters.items():
        (port / "counters").mkdir(parents=True, exist_ok=True)
        (port / "counters" / name).write_text(f"{value}\n")


def test_levels_come_at_once_and_rates_with_the_second_reading(tmp_path):
    host = Host(tmp_path, sysfs=tmp_path)
    first = host.read(0.0).values
    assert first["memory_used_bytes"] > 0 and first["disk_used_bytes"] > 0
    assert not any(name.endswith("_per_s") or name == "cpu_percent" for name in first)
    second = host.read(60.0).values
    assert second["cpu_percent"] >= 0 and second["network_received_bytes_per_s"] >= 0


def test_infiniband_ports_have_rates_and_faults(tmp_path):
    port = tmp_path / "class/infiniband/mlx5_0/ports/1"
    write(port, port_rcv_data=1000, port_xmit_data=500, link_downed=2, symbol_error=0)
    host = Host(tmp_path, sysfs=tmp_path)
    assert host.read(0.0).events == {}
    write(port, port_rcv_data=3000, port_xmit_data=500, link_downed=3)
    readings = host.read(2.0)
    assert readings.values["mlx5_0:1/received_bytes_per_s"] == 4000.0
    assert readings.values["mlx5_0:1/sent_bytes_per_s"] == 0.0
    assert readings.events == {"mlx5_0:1: link downed": 1}


def test_faults_are_read_from_the_kernels_log_from_now_on(tmp_path):
    path = tmp_path / "kmsg"
    path.write_text("4,0,1,-;NVRM: Xid (PCI:0000:3b:00): 13, before the worker began\n")
    log = KernelLog(path)
    assert (log.read().xids, log.read().events) == ([], {})
    with path.open("a") as file:
        file.write(KERNEL_LOG)
    faults = log.read()
    assert faults.xids == [("0000:3b:00", 79)]
    assert faults.events == {
        "the kernel killed pt_main_thread for lack of memory": 1,
        "hardware error": 1,
        "the network card ib0 lost its link": 1,
    }
    assert log.read().xids == []
    log.close()


@pytest.mark.parametrize("path", ["missing", "."], ids=["none", "not readable"])
def test_a_log_that_cannot_be_read_says_nothing(tmp_path, path):
    log = KernelLog(tmp_path / path)
    assert log.read().events == {}
    log.close()


def test_this_machines_kernel_log_is_followed_without_waiting():
    if not os.access("/dev/kmsg", os.R_OK):
        pytest.skip("the kernel's log is not readable here")
    log = KernelLog()
    log.read()
    log.close()
