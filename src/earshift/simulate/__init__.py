"""Simulated listeners and the classical procedures that they can be tested with."""
