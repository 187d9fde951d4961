"""The store: where the desired state of people meets the observed state of workers."""
