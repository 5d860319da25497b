"""Words that the whole of earshift shares: ears, units of level, transducers."""

EARS = ("right", "left")
HEARING_LEVEL, RELATIVE_LEVEL = "dB HL", "relative dB"  # units of a tone's level
TRANSDUCERS = ("supra-aural", "circumaural", "insert", "unknown")
