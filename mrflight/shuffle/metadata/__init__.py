"""What a metadata server knows: servers, placement, committed attempts, and its journal."""
