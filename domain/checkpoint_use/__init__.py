"""The use of stored checkpoints: work on them, resumes from them, rules that keep them."""
