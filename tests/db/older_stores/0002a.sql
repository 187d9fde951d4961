CREATE TABLE snapshots (
    sha256 VARCHAR(64) NOT NULL,
    size_bytes BIGINT NOT NULL,
    files INTEGER NOT NULL,
    origin JSON NOT NULL,
    created_at FLOAT NOT NULL,
    PRIMARY KEY (sha256)
);
CREATE TABLE findings (
    id INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    node_rank INTEGER NOT NULL,
    kind TEXT NOT NULL,
    evidence TEXT NOT NULL,
    meaning TEXT NOT NULL,
    mend TEXT NOT NULL,
    first_at FLOAT NOT NULL,
    gone_at FLOAT,
    PRIMARY KEY (id),
    FOREIGN KEY(fence) REFERENCES attempts (fence) ON DELETE CASCADE,
    UNIQUE (fence, node_rank, kind)
);
ALTER TABLE attempts ADD COLUMN next_step TEXT;
ALTER TABLE parts ADD COLUMN next_step TEXT;
ALTER TABLE parts ADD COLUMN interpreter JSON;
ALTER TABLE checkpoints ADD COLUMN prefix TEXT;
