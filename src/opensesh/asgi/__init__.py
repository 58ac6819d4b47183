"""What all HTTP servers of opensesh share: listening, limits of connections and bodies, accepted hosts and origins."""
