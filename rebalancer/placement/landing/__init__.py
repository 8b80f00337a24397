"""Where the replacements of a plan land."""
