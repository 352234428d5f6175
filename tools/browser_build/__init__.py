"""Builds what the pages load: Python for the browser, wheels, exercises, scripts."""
