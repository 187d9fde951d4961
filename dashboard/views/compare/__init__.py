"""The Compare page: several runs in one chart per series, and what differs between them."""
