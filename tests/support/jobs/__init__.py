"""Jobs, their files and inputs, and what is planned for them."""
