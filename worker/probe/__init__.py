"""What looks into unchanged training scripts: a folder for the PYTHONPATH of the ranks."""
