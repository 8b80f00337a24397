"""The living cluster over a day."""
