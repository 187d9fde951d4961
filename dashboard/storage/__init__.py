"""Storage of checkpoints and files: in the directory of files, or as objects of an S3-compatible bucket."""
