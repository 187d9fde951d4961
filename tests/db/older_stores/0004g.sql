ALTER TABLE attempts ADD COLUMN resize_requested_at FLOAT;
ALTER TABLE attempts ADD COLUMN resize_message TEXT;
ALTER TABLE attempts ADD COLUMN turn_since FLOAT;
