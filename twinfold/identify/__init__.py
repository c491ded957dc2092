"""What data can tell: how sure a parameter is, and how far a learned residual can be trusted under other loads."""
