"""What coding agents may do: the budgets of their tokens."""
