"""From files to points and bytes: what an attempt writes, brought to the server exactly once."""
