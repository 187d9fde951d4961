"""The worker's program: what it does with its session, its trainings and the accounts that they run under."""
