"""The routes of the API, by what they are about. Thin: parse, call the clinic, answer."""
