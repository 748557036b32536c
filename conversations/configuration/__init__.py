"""Configuration as code: one YAML file says what organizations, endpoints, servers and agents there are."""
