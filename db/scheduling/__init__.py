"""The queue and the nodes as the scheduler reads them, and what it decides, written down."""
