"""The search for a plan: what is open, the candidates, their ranking, and the best one applied to the run."""
