"""One model of a person; every clinical question is a functional of it.

Who comes (`population`), how hearing changes (`change`), how people answer (`answers`), where a
person is known from (`reference`), the cloud of weighted persons that the answers leave (`cloud`),
and what is asked of it (`questions`, `posterior`).
"""
