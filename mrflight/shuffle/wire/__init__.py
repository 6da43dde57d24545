"""What clients and servers say to each other: messages, tickets, blocks and their encoding."""
