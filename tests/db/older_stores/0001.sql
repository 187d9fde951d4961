CREATE TABLE nodes (
    id VARCHAR(10) NOT NULL,
    name TEXT NOT NULL,
    instance_id TEXT NOT NULL,
    token_hash VARCHAR(64) NOT NULL,
    hostname TEXT NOT NULL,
    address TEXT NOT NULL,
    devices JSON NOT NULL,
    labels JSON NOT NULL,
    info JSON NOT NULL,
    load JSON,
    first_seen FLOAT NOT NULL,
    last_seen FLOAT NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX ix_nodes_token_hash ON nodes (token_hash);
CREATE TABLE runs (
    id VARCHAR(10) NOT NULL,
    name TEXT NOT NULL,
    project TEXT NOT NULL,
    spec JSON NOT NULL,
    created_at FLOAT NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX ix_runs_created_at ON runs (created_at);
CREATE INDEX ix_runs_project ON runs (project);
CREATE TABLE attempts (
    fence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    run_id VARCHAR(10) NOT NULL,
    number INTEGER NOT NULL,
    created_at FLOAT NOT NULL,
    stop_requested_at FLOAT,
    resume_checkpoint_id INTEGER,
    state VARCHAR(16) NOT NULL,
    waiting_for TEXT,
    reason VARCHAR(32),
    message TEXT,
    error JSON,
    placed_at FLOAT,
    started_at FLOAT,
    ended_at FLOAT,
    master_addr TEXT,
    master_port INTEGER,
    FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE,
    UNIQUE (run_id, number)
);
CREATE INDEX ix_attempts_state ON attempts (state);
CREATE TABLE history (
    id INTEGER NOT NULL,
    run_id VARCHAR(10) NOT NULL,
    attempt INTEGER,
    at FLOAT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);
CREATE INDEX history_of_run ON history (run_id, id);
CREATE TABLE checkpoints (
    id INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    node_rank INTEGER NOT NULL,
    path TEXT NOT NULL,
    step BIGINT,
    size_bytes BIGINT NOT NULL,
    sha256 VARCHAR(64) NOT NULL,
    received_bytes BIGINT NOT NULL,
    complete BOOLEAN NOT NULL,
    written_at FLOAT NOT NULL,
    created_at FLOAT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(fence) REFERENCES attempts (fence) ON DELETE CASCADE,
    UNIQUE (fence, node_rank, path, sha256)
);
CREATE TABLE files (
    id INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    node_rank INTEGER NOT NULL,
    path TEXT NOT NULL,
    generation INTEGER NOT NULL,
    size_bytes BIGINT NOT NULL,
    points_offset BIGINT NOT NULL,
    PRIMARY KEY (id),
    FOREIGN KEY(fence) REFERENCES attempts (fence) ON DELETE CASCADE,
    UNIQUE (fence, node_rank, path, generation)
);
CREATE TABLE parts (
    fence INTEGER NOT NULL,
    node_rank INTEGER NOT NULL,
    node_id VARCHAR(10) NOT NULL,
    device_kind VARCHAR(8) NOT NULL,
    devices JSON NOT NULL,
    state VARCHAR(16) NOT NULL,
    pid INTEGER,
    argv JSON,
    env JSON,
    cwd TEXT,
    exit_code INTEGER,
    reason VARCHAR(32),
    message TEXT,
    error JSON,
    reported_at FLOAT,
    PRIMARY KEY (fence, node_rank),
    FOREIGN KEY(fence) REFERENCES attempts (fence) ON DELETE CASCADE,
    FOREIGN KEY(node_id) REFERENCES nodes (id)
);
CREATE INDEX ix_parts_node_id ON parts (node_id);
CREATE INDEX ix_parts_state ON parts (state);
CREATE TABLE series (
    id INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    node_rank INTEGER NOT NULL,
    source VARCHAR(8) NOT NULL,
    tag TEXT NOT NULL,
    count BIGINT NOT NULL,
    first_step BIGINT NOT NULL,
    last_step BIGINT NOT NULL,
    first_wall FLOAT NOT NULL,
    last_wall FLOAT NOT NULL,
    last_value BLOB NOT NULL,
    finite_sum FLOAT NOT NULL,
    finite_count BIGINT NOT NULL,
    not_finite_since BIGINT,
    PRIMARY KEY (id),
    FOREIGN KEY(fence) REFERENCES attempts (fence) ON DELETE CASCADE,
    UNIQUE (fence, node_rank, source, tag)
);
CREATE TABLE chunks (
    series_id INTEGER NOT NULL,
    level INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    count INTEGER NOT NULL,
    step_min BIGINT NOT NULL,
    step_max BIGINT NOT NULL,
    points BLOB NOT NULL,
    PRIMARY KEY (series_id, level, seq),
    FOREIGN KEY(series_id) REFERENCES series (id) ON DELETE CASCADE
)
 WITHOUT ROWID;
