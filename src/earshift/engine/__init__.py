"""The method: what a tone is, what an ear's answers say, which tone to ask next.

No input or output: nothing here knows of files, databases or clinics.
"""
