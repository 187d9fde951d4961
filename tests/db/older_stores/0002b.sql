ALTER TABLE attempts ADD COLUMN stacks_requested_at FLOAT;
ALTER TABLE parts ADD COLUMN stacks JSON;
