"""Series: which names mean one figure, which values are better, and how printed lines become points. Pure."""
