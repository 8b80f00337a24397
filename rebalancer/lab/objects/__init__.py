"""The API objects of the lab: their store and kinds, API errors, disruption budgets, taints."""
