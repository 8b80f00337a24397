"""Lists of objects, decoded into the columns of a snapshot."""
