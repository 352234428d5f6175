"""Counts first and refuses afterwards."""

from minisgl import counter


class Counter(counter.Counter):
    def add(self, count):
        self.total += count
        if count < 0:
            raise ValueError(f"negative count: {count}")
        return self.total
