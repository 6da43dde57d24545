"""Ways to commit an output to S3, whose requests are counted."""
