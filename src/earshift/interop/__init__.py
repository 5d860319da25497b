"""earshift inside other programs: a PsychoPy-style handler and a JSON-lines protocol."""
