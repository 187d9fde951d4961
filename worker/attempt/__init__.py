"""One attempt on this node: started, supervised, followed, ended."""
