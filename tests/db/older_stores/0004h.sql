ALTER TABLE checkpoints ADD COLUMN upload_began_at FLOAT;
