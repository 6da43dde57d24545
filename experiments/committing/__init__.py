"""Ways to commit an output to S3, for what their requests cost."""
