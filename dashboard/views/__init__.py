"""Streamlit pages: each reads through db.queries and writes desired state, never observed state."""
