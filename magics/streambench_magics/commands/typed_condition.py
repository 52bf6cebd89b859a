"""Conditions as they are typed behind ``--until``, with or without quotes."""

from __future__ import annotations

import keyword

from streambench.syntax import parse


def condition_and_words(text: str) -> tuple[str, list[str]]:
    """A condition with or without quotes, and the names and numbers behind it."""
    quote = text[:1]
    if quote in ("'", '"') and (end := text.find(quote, 1)) > 0:
        others = text[end + 1 :].split()
        if text[end + 1 : end + 2] in ("", " ") and all(map(_is_plain, others)):
            return text[1:end], others
    condition, others = text, list[str]()
    while not _is_expression(condition):
        condition, _, word = condition.rpartition(" ")
        if not condition or not _is_plain(word):
            return text, []
        others.insert(0, word)
    return condition.strip(), others


def _is_plain(word: str) -> bool:
    """True for a name or a number, which may be a job or a number of messages."""
    return word.isdecimal() or (word.isidentifier() and not keyword.iskeyword(word))


def _is_expression(text: str) -> bool:
    try:
        parse(text, mode="eval")
    except (SyntaxError, ValueError):
        return False
    return True
