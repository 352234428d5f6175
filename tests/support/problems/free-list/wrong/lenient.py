"""Takes back a page that is not out."""

from collections import deque


class FreeList:
    def __init__(self, num_pages):
        self.free = deque(range(num_pages))

    def take(self):
        return self.free.popleft() if self.free else None

    def give(self, page):
        self.free.append(page)
