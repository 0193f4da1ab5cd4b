"""A project that was there before."""
