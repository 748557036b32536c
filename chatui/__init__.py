"""The project package: its roof composes the rooms, its floor holds what every room may use."""
