"""The record: what was asked, what was answered, what callers said of it. The only place that speaks SQL."""
