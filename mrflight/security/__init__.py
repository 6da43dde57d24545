"""Who may call whom: certificates, tokens, and the roles of callers."""
