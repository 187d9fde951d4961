ALTER TABLE attempts ADD COLUMN changes JSON;
