"""Runs GPU jobs under a spend cap: plan, reserve, launch, watch, tear down, pull."""
