"""How many tokens an exchange took, counted the same way for every dialect.

`input` is everything the model read, `cached` and `cache_write` being parts of it; `output` is everything it wrote,
`reasoning` being a part of it. Providers differ in what they put into which number; here they do not.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens by kind. `cache_write_1h` is the part of `cache_write` that is kept, and paid for, longer.

    `web_searches` are not tokens, but a model's answer is billed for them as well.
    """

    input: int = 0
    cached: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    output: int = 0
    reasoning: int = 0
    web_searches: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(Tokens)))

    def to_json(self) -> dict[str, int]:
        return asdict(self)


def count(value: object) -> int:
    """A number of tokens as a provider wrote it; anything that is not a natural number counts nothing."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
