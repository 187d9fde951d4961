"""Commands about the installation: the programs of a server, and the nodes that train."""
