ALTER TABLE nodes ADD COLUMN removed_at FLOAT;
CREATE TABLE join_tokens (
    id VARCHAR(8) NOT NULL,
    name TEXT NOT NULL,
    secret_hash VARCHAR(64) NOT NULL,
    created_at FLOAT NOT NULL,
    expires_at FLOAT NOT NULL,
    revoked_at FLOAT,
    last_used_at FLOAT,
    uses INTEGER NOT NULL,
    PRIMARY KEY (id)
);
