"""Streamlit pages: each reads through db.queries and writes wishes, never facts."""
