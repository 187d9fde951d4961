"""A CUDA without a GPU, for scripts that the probe watches."""

import os  # noqa: F401 - for the scripts that begin with this file
import types
from pathlib import Path

import torch


class FakeCuda:
    """torch.cuda of one device, with the structure of torch 2.13's `_snapshot()`: what the CPU build does not have.

    Storages of the model and its optimizer count as the device's.
    """

    def __init__(self, torch, model, optimizer, user_file):
        self.torch, self.model, self.optimizer, self.user_file = torch, model, optimizer, user_file
        self.observers, self.recording, self.reserved, self.backend = [], [], 8 << 30, "native"
        self.storage = None
        cuda, memory = torch.cuda, torch.cuda.memory
        torch._C._cuda_attach_out_of_memory_observer = self.observers.append
        torch._C._cuda_isHistoryEnabled = lambda: False
        memory.get_allocator_backend = lambda: self.backend
        memory._record_memory_history = lambda enabled="all", **options: self.recording.append((enabled, options))
        memory._snapshot = lambda: self.snapshot()
        cuda.current_device, cuda.device_count = lambda: 0, lambda: 1
        cuda.memory_allocated = cuda.max_memory_allocated = lambda device=0: 3 << 30
        cuda.max_memory_reserved = lambda device=0: self.reserved
        cuda.get_device_properties = lambda device: types.SimpleNamespace(total_memory=16 << 30)

    def initialise(self):
        """As `_lazy_init` does: the queued calls run first, then CUDA counts as initialised."""
        from rankzero_probe import device_memory

        for call, _ in self.torch.cuda._queued_calls:
            if "rankzero" in call.__module__:
                call()
        self.torch.cuda.is_initialized = lambda: True
        if self.storage is None:
            self.storage = device_memory._storage
            device_memory._storage = lambda tensor, device: self.storage(_OnDevice(tensor), device)

    def run_out_of_memory(self, requested):
        for observe in self.observers:
            observe(0, requested, 16 << 30, 1 << 30)
        raise self.torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {requested / 2**30:.2f} GiB")

    def snapshot(self):
        library = str(Path(self.torch.__file__).parent / "nn" / "modules" / "linear.py")
        frames = [
            {"filename": library, "line": 125, "name": "forward"},
            {"filename": self.user_file, "line": 41, "name": "forward"},
            {"filename": self.user_file, "line": 90, "name": "<module>"},
        ]
        blocks = [block(1 << 20, frames=[])]
        blocks += [block(size, frames=frames) for size in (4 << 30, 2 << 30)]
        blocks += [
            block(512 << 20, "inactive"),
            block(128 << 20, "inactive"),
            block(1 << 20, "active_awaiting_free"),
        ]
        for tensor in self.tensors():
            storage = tensor.untyped_storage()
            blocks.append(block(storage.nbytes(), address=storage.data_ptr(), frames=[]))
        total = sum(entry["size"] for entry in blocks)
        segment = {
            "device": 0,
            "address": 1 << 40,
            "total_size": total,
            "stream": 0,
            "segment_type": "large",
            "segment_pool_id": (0, 0),
            "allocated_size": total,
            "active_size": total,
            "requested_size": total,
            "is_expandable": False,
            "frames": [],
            "blocks": blocks,
        }
        other = {**segment, "device": 1, "blocks": [block(9 << 30)]}
        return {"segments": [segment, other], "device_traces": [[], []], "allocator_settings": {}}

    def tensors(self):
        for parameter in self.model.parameters():
            yield parameter
            if parameter.grad is not None:
                yield parameter.grad
        for state in self.optimizer.state.values():
            yield from (value for value in state.values() if torch.is_tensor(value) and value.numel() > 1)


def block(size, state="active_allocated", address=1, frames=()):
    return {"size": size, "requested_size": size, "address": address, "state": state, "frames": list(frames)}


class _OnDevice:
    """A tensor of the CPU that says it is on the device; a step count, which stays on the CPU, does not."""

    def __init__(self, tensor):
        self._tensor = tensor
        self.device = types.SimpleNamespace(type="cuda" if tensor.numel() > 1 else "cpu", index=0)

    def untyped_storage(self):
        return self._tensor.untyped_storage()
