"""The same bad luck for five ways to keep a rented GPU from costing too much.

A comparison of policies, not of products: docs/scoreboard.md says how each was modelled.
"""
