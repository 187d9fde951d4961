"""The program that pushes a checkpoint to the Hugging Face Hub or into a bucket."""
