"""What EC2, IAM and EventBridge Scheduler refuse and moto lets through, one subject a file.

`orchestrator.localcloud.strict` puts them in force; docs/localcloud.md names their AWS sources.
moto's private names are used on purpose (its version is pinned).
"""
