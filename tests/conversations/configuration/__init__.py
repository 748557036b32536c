"""Tests of configuration as code."""
