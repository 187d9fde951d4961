ALTER TABLE checkpoints ADD COLUMN location TEXT;
ALTER TABLE checkpoints ADD COLUMN upload_id TEXT;
ALTER TABLE checkpoints ADD COLUMN trouble TEXT;
CREATE TABLE discarded (
    location TEXT NOT NULL,
    discarded_at FLOAT NOT NULL,
    PRIMARY KEY (location)
);
