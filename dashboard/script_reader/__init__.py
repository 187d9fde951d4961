"""What a training script says about itself, read and never run."""
