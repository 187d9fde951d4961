"""The commands, a folder for each subject."""
