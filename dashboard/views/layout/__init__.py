"""What all pages share: style, tables, links."""
