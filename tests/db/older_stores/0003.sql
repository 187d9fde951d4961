ALTER TABLE nodes ADD COLUMN drain_requested_at FLOAT;
ALTER TABLE nodes ADD COLUMN foreign_devices JSON;
ALTER TABLE attempts ADD COLUMN expected_start_at FLOAT;
