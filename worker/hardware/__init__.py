"""Hardware of this node while a run trains on it: devices, host, processes and what the kernel says of them."""
