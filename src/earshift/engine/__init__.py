"""The method: from answers to probabilities, and from probabilities to the next tone."""
