"""Standing clusters, their servers, registries and stores."""
