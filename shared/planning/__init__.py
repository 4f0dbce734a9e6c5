"""The question a forecast answers: what is public of a release, and which regression it is about."""
