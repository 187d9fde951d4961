"""What a foreign training script says about itself: its options, what they take, and how it is started."""
