"""Settings, paths and the build of the process."""
