"""Hands out the page that came back last, not the one that waited longest."""


class FreeList:
    def __init__(self, num_pages):
        self.free = list(range(num_pages))[::-1]
        self.out = set()

    def take(self):
        if not self.free:
            return None
        page = self.free.pop()
        self.out.add(page)
        return page

    def give(self, page):
        if page not in self.out:
            raise ValueError(f"page {page} is not out")
        self.out.remove(page)
        self.free.append(page)
