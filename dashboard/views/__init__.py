"""Streamlit pages: each reads from the store and writes desired state, never observed state."""
