"""What a clinic does with people, devices and exams: every policy that the skins share."""
