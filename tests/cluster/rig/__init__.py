"""The machinery of the cluster proof: programs, API client, cases. Runs inside the namespace that `run` made."""
