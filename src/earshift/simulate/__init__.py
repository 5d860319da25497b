"""Simulated listeners, running a procedure with one, and the classical procedure beside it."""
