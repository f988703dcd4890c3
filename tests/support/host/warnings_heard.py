"""Afflux's warnings to its users, as the tests hear them."""

import logging

__all__ = ["Recording"]


class Recording(logging.Handler):
    """Keeps the messages of Afflux's warnings, from when it is made until its process ends.

    Attributes:
        messages: In order.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []
        logging.getLogger("afflux").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
