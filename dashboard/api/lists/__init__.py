"""How people look at many runs: saved views, projects."""
