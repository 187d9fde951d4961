"""What people's trainings die of: how each cause is recognised, told in a sentence, and mended."""
