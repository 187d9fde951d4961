ALTER TABLE attempts ADD COLUMN preflighted_at FLOAT;
update attempts set preflighted_at = started_at;
ALTER TABLE parts ADD COLUMN preflight JSON;
CREATE TABLE checks (
    id INTEGER NOT NULL,
    fence INTEGER,
    python TEXT,
    bandwidth BOOLEAN NOT NULL,
    asked_at FLOAT NOT NULL,
    stage INTEGER NOT NULL,
    stage_at FLOAT NOT NULL,
    rounds JSON NOT NULL,
    measured JSON NOT NULL,
    ended_at FLOAT,
    PRIMARY KEY (id),
    FOREIGN KEY(fence) REFERENCES attempts (fence) ON DELETE CASCADE,
    UNIQUE (fence)
);
CREATE INDEX ix_checks_ended_at ON checks (ended_at);
CREATE TABLE check_parts (
    check_id INTEGER NOT NULL,
    node_rank INTEGER NOT NULL,
    node_id VARCHAR(10) NOT NULL,
    node TEXT NOT NULL,
    devices JSON NOT NULL,
    facts JSON,
    answered_stage INTEGER NOT NULL,
    silent_s FLOAT,
    PRIMARY KEY (check_id, node_rank),
    FOREIGN KEY(check_id) REFERENCES checks (id) ON DELETE CASCADE
);
CREATE INDEX ix_check_parts_node_id ON check_parts (node_id);
CREATE TABLE pair_passes (
    node_a VARCHAR(10) NOT NULL,
    node_b VARCHAR(10) NOT NULL,
    fingerprint VARCHAR(64) NOT NULL,
    bytes_per_s FLOAT NOT NULL,
    at FLOAT NOT NULL,
    PRIMARY KEY (node_a, node_b)
);
