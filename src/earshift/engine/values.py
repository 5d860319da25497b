"""Words that the whole of earshift shares: ears, units of level, transducers."""

EARS = ("right", "left")
BOTH = "both"  # of an exam that tests both in one sitting; its tones have their own ear
HEARING_LEVEL, RELATIVE_LEVEL = "dB HL", "relative dB"  # units of a tone's level
TRANSDUCERS = ("supra-aural", "circumaural", "insert", "unknown")
