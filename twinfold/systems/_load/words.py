"""Steps of a load in words, as users of PyBaMM write them.

step      = Discharge at CURRENT|POWER END | Charge at CURRENT|POWER END | Hold at VOLTAGE END | Rest END
END       = [for DURATION] [or] [until VOLTAGE|CURRENT] [(DURATION period)]
CURRENT   = 2 A | 50 mA | 1C | 0.5C | C/5        POWER = 5 W        VOLTAGE = 4.2 V | 2800 mV
DURATION  = 10 minutes | 1 hour | 30 s
"""

import re
from dataclasses import dataclass

from twinfold.systems._load.steps import LoadStep, Quantity

UNITS = {
    "a": ("A", 1.0), "ma": ("A", 1e-3), "v": ("V", 1.0), "mv": ("V", 1e-3), "w": ("W", 1.0), "mw": ("W", 1e-3),
    "kw": ("W", 1e3), "c": ("C", 1.0),
}  # fmt: skip
SECONDS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}
TOKEN = re.compile(r"[0-9.]+(?:[eE][+-]?[0-9]+)?(?![0-9.])|[A-Za-z]+|\S")
REPEAT = re.compile(r"\s*repeat\s+(\d+)\s+times\s*", re.I)


def parse_steps(text: str) -> tuple[LoadStep, ...]:
    """The steps of a text: one for each line or part between semicolons; `repeat N times` repeats all before it."""
    steps: tuple[LoadStep, ...] = ()
    for part in re.split(r"[;\n]", text):
        if not part.strip():
            continue
        if again := REPEAT.fullmatch(part):
            if not steps:
                raise ValueError(f"load: there is nothing before '{part.strip()}' to repeat.")
            steps = steps * int(again[1])
        else:
            steps += (_Reader(part.strip(), TOKEN.findall(part)).step(),)
    return steps


@dataclass
class _Reader:
    text: str
    tokens: list[str]

    def step(self) -> LoadStep:
        """The whole text as one step."""
        verb = self._take("discharge", "charge", "hold", "rest")
        if verb == "rest":
            held = Quantity(0.0, "A")
        else:
            self._take("at")
            held = self._quantity(("V",) if verb == "hold" else ("A", "C", "W"))
        charging = verb in ("charge", "hold")
        duration, until, period = None, None, None
        while self.tokens:
            word = self._take("for", "or", "until", "(") if verb != "rest" else self._take("for", "(")
            if word == "for":
                duration = self._duration()
            elif word == "until":
                until = self._quantity(("A", "C") if verb == "hold" else ("V",))
            elif word == "(":
                period = self._duration()
                self._take("period")
                self._take(")")
        if duration is None and until is None:
            raise ValueError(f"load: '{self.text}' never ends; say 'for' how long, or 'until' which value.")
        if verb == "charge":
            held = Quantity(-held.value, held.unit)
        return LoadStep(self.text, held, charging, duration, until, period)

    def _take(self, *expected: str) -> str:
        """The next word, one of those expected."""
        word = self.tokens.pop(0) if self.tokens else ""
        if word.lower() not in expected:
            raise ValueError(f"load: {self._found(word)}; expected {_listed(expected)}.")
        return word.lower()

    def _number(self, what: str) -> float:
        word = self.tokens.pop(0) if self.tokens else ""
        try:
            value = float(word)
        except ValueError:
            raise ValueError(f"load: {self._found(word)}; expected {what}.") from None
        if not value > 0:
            raise ValueError(f"load: {self._found(word)}; expected a positive number.")
        return value

    def _quantity(self, units: tuple[str, ...]) -> Quantity:
        what = f"a value in {_listed(units)}"
        if "C" in units and self.tokens and self.tokens[0].lower() == "c":
            self._take("c")
            self._take("/")
            return Quantity(1 / self._number("a number of hours"), "C")
        value = self._number(what)
        word = self.tokens.pop(0) if self.tokens else ""
        unit, factor = UNITS.get(word.lower(), ("", 1.0))
        if unit not in units:
            raise ValueError(f"load: {self._found(word)}; expected {what}.")
        return Quantity(value * factor, unit)

    def _duration(self) -> float:
        value = self._number("a duration, such as 10 minutes")
        word = self.tokens.pop(0) if self.tokens else ""
        if word.lower() not in SECONDS:
            raise ValueError(f"load: {self._found(word)}; expected seconds, minutes or hours.")
        return value * SECONDS[word.lower()]

    def _found(self, word: str) -> str:
        return f"'{word}' in '{self.text}' is not understood" if word else f"'{self.text}' breaks off"


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words[:-1]) + " or " * (len(words) > 1) + words[-1]
