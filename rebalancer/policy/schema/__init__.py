"""The policy file, section by section."""
