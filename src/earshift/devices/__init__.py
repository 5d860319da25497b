"""What plays the tones: sound, calibration, and how an exam is delivered."""
