"""The library behind `tools/steps.py`: the manifest, the patch stack and its checks.

Start at `manifest.Course` (what the chapters are) and `stack.Stack` (what the package
looks like at each of them).
"""
