"""The base of objects that are closed, which makes them context managers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Closeable(ABC):
    """An object that is closed when its ``with`` block ends, normally or by an error."""

    @abstractmethod
    def close(self) -> None: ...

    def abandon(self) -> None:
        """Close after an error, as `close` does unless a class overrides this."""
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()
