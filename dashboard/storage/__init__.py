"""Where checkpoints lie: in the directory of files, or as objects of an S3-compatible bucket."""
