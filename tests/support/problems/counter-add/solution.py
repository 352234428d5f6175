from minisgl import counter


class Counter(counter.Counter):
    def add(self, count: int) -> int:
        """Count `count` more; returns the total."""
        if count < 0:
            raise ValueError(f"negative count: {count}")
        self.total += count
        return self.total
