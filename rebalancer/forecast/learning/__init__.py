"""From levels of each history, and outcomes of earlier forecasts, to a prediction with its interval."""
