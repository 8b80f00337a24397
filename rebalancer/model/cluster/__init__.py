"""The cluster at one moment: objects, selectors, templates and the snapshot as columns."""
