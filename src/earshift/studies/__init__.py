"""Studies of simulated listeners: cases, runs that resume, result pages and figures."""
