"""What is true without a disk, a clock or a network: the spec, the messages, who runs where and why."""
