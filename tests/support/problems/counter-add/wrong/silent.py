"""Leaves a negative count out and says nothing."""

from minisgl import counter


class Counter(counter.Counter):
    def add(self, count):
        if count > 0:
            self.total += count
        return self.total
