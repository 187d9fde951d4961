"""The lists that a terminal and a page, or a page and a report, both show: each is described once."""
