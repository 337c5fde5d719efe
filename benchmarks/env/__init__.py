"""The env server's cost, beside a bare socket and stock OpenEnv (`python -m benchmarks env`)."""
