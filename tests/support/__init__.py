"""What several tests share: drivers, databases, listeners."""
