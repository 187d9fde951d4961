"""Files that hold secrets of this installation: tokens, the key of stored secrets, the certificate."""
