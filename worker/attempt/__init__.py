"""One attempt on this node, from its start to the report of its end."""
