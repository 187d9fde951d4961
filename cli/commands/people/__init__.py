"""Commands about people: who they are, what they may do, their secrets, and what they did."""
