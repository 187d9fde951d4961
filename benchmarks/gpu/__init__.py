"""What only a machine with an NVIDIA GPU shows, measured by the whole product: `make test-gpu`."""
