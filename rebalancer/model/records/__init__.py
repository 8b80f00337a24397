"""Records of what happened, as the database, reports and messages have them."""
