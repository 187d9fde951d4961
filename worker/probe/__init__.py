"""The probe for unchanged training scripts: a folder for the PYTHONPATH of the ranks."""
