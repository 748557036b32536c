"""What people see: conversations, messages, turns and their feed."""
