"""Helpers of tests: jobs that the real driver runs, real servers, and checks of what they leave."""
