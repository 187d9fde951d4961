"""The budgets of tokens: what their runs have taken."""
