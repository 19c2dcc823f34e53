"""The command line: `holdfast demo | nexmark | bench`."""
