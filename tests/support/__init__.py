"""What tests share: jobs run through the real driver, real servers, and what they may leave."""
