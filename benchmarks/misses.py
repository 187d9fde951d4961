"""Why a measurement misses a target, where that is known; printed only while it is missed."""

WHY = {
    "back_to_training": "a new attempt without the warm start runs torchrun anew, which imports torch once more than "
    "torchrun's own restart; the warm one forks both, and its seconds are those of a machine with a load of 15.",
    "chart": "TensorBoard keeps at most 1,000 points of a series, in memory, and has nothing to read or to thin; "
    "ours reads 2,000 of the million from SQLite.",
    "command_line": "most of the time is imports: of those of `rankzero runs` pydantic takes a quarter, and httpx with "
    "httpcore and h11 a sixth; `--help` needs neither.",
    "ingestion": "a request costs some 30 ms beside its points on this busy machine: 100 runs in turns are 100 "
    "requests of 409 points, one run is 8 of 5,120. trackio and the writers have no server and buffer.",
}
