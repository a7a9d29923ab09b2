"""Members that are asked in the caller's own format, on either lane."""
