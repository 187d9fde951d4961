ALTER TABLE nodes ADD COLUMN pool VARCHAR(32) DEFAULT '' NOT NULL;
CREATE TABLE jobs (
    fence INTEGER NOT NULL,
    gateway_id VARCHAR(10) NOT NULL,
    said JSON,
    ended_at FLOAT,
    PRIMARY KEY (fence),
    FOREIGN KEY(fence) REFERENCES attempts (fence) ON DELETE CASCADE,
    FOREIGN KEY(gateway_id) REFERENCES nodes (id)
);
CREATE INDEX ix_jobs_gateway_id ON jobs (gateway_id);
