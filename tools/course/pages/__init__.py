"""The course's pages: what they show of each stage, and the checks of what they say."""
