"""Parts of `show` and `diff`: values block by block, layers, and rows of a document of bounded size."""
