"""Opening hours of a shop, as spans of minutes since midnight. The end of a span is not part of it."""


def merge(spans):
    """The same time in as few spans as possible, sorted. Raises ValueError for a span that ends before it starts."""
    spans.sort()
    merged = []
    for start, end in spans:
        if end < start:
            raise ValueError(f"the span ({start}, {end}) ends before it starts")
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def total(spans):
    """How many minutes are covered."""
    return sum(end - start for start, end in merge(spans))


def is_open(spans, minute):
    """Whether a minute lies in any of the spans."""
    return any(start <= minute <= end for start, end in spans)
