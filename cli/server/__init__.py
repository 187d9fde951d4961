"""The server as the command line sees it: found, asked, downloaded from."""
