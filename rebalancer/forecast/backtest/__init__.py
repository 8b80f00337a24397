"""Predictors compared on recorded days. Loaded only by `rebalancer backtest`."""
